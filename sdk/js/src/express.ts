// Middleware for Express: failed requests are answered 202 and repeated by Postrider.

import { FailedIncoming, type IncomingOptions, type IncomingRequest, Relay, type RelayOptions } from "./incoming.js";

export type { FailedRequest, HandOverOptions, Queued } from "./handover.js";
export type { IncomingOptions, RelayOptions } from "./incoming.js";

/** What this needs of Express' own types; Express is no dependency of this package. */
export interface ExpressRequest {
  method: string;
  originalUrl: string;
  headers: IncomingRequest["headers"];
  body?: unknown;
}

export interface ExpressResponse {
  headersSent: boolean;
  status(code: number): ExpressResponse;
  set(name: string, value: string): ExpressResponse;
  json(body: unknown): unknown;
}

type Next = (error?: unknown) => void;

/**
 * An error handler, to be used after the routes. A request that failed is answered `202 {"queued":true,"id":"msg_…",…}`
 * and made again by Postrider, at `target`. What cannot be handed over goes to the next error handler.
 */
export function handOverErrors(
  options: IncomingOptions,
): (error: unknown, request: ExpressRequest, response: ExpressResponse, next: Next) => Promise<void> {
  const failures = new FailedIncoming(options);
  // Express knows an error handler by its four parameters.
  return async (error, request, response, next) => {
    if (response.headersSent) return next(error);
    const { method, headers, body, originalUrl: path } = request;
    const queued = await failures.offer(error, { method, headers, body, path });
    if (queued === undefined) return next(error);
    response.status(202).set("postrider-message", queued.id).json(queued);
  };
}

/** The handler of the route that `retryingFetch({ relay })` calls. Needs `express.json()` and your own sign-in. */
export function relay(options: RelayOptions): (request: ExpressRequest, response: ExpressResponse) => Promise<void> {
  const relay = new Relay(options);
  return async (request, response) => {
    const { status, body } = await relay.answer(request.body);
    response.status(status).json(body);
  };
}
