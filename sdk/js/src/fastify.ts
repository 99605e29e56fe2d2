// Handlers for Fastify: failed requests are answered 202 and repeated by Postrider.

import { FailedIncoming, type IncomingOptions, type IncomingRequest, Relay, type RelayOptions } from "./incoming.js";

export type { FailedRequest, HandOverOptions, Queued } from "./handover.js";
export type { IncomingOptions, RelayOptions } from "./incoming.js";

/** What this needs of Fastify's own types; Fastify is no dependency of this package. */
export interface FastifyRequestLike {
  method: string;
  originalUrl: string;
  headers: IncomingRequest["headers"];
  body?: unknown;
}

export interface FastifyReplyLike {
  code(status: number): FastifyReplyLike;
  header(name: string, value: string): FastifyReplyLike;
  send(body: unknown): unknown;
}

/**
 * For `app.setErrorHandler`. A request that failed is answered `202 {"queued":true,"id":"msg_…",…}` and made again by
 * Postrider, at `target`. What cannot be handed over gets Fastify's own answer.
 */
export function handOverErrors(
  options: IncomingOptions,
): (error: unknown, request: FastifyRequestLike, reply: FastifyReplyLike) => Promise<void> {
  const failures = new FailedIncoming(options);
  return async (error, request, reply) => {
    const { method, headers, body, originalUrl: path } = request;
    const queued = await failures.offer(error, { method, headers, body, path });
    if (queued === undefined) await reply.send(error);
    else await reply.code(202).header("postrider-message", queued.id).send(queued);
  };
}

/** The handler of the route that `retryingFetch({ relay })` calls. Needs your own sign-in. */
export function relay(options: RelayOptions): (request: FastifyRequestLike, reply: FastifyReplyLike) => Promise<void> {
  const relay = new Relay(options);
  return async (request, reply) => {
    const { status, body } = await relay.answer(request.body);
    await reply.code(status).send(body);
  };
}
