// A `fetch` whose failed requests are repeated by Postrider. In a page, it goes through your own server.

import { HandOverError, InvalidArgumentError, retryAfterSeconds } from "./errors.js";
import { isHandedOver, isTemporary, isWithdrawn, textOf } from "./failure.js";
import { type FailedRequest, HandOver, type HandOverOptions, LocalQueue, type Queued, refusal } from "./handover.js";

export type { FailedRequest, HandOverOptions, Queued } from "./handover.js";

interface FetchChoices {
  /** Which `fetch` makes the request; the global one if absent. */
  fetch?: typeof fetch;
  /** Whether a request may be handed over; POST, PUT, PATCH and DELETE if absent. */
  handsOver?: (request: Request) => boolean;
}

/** On a server: with a client. */
export type ServerFetchOptions = HandOverOptions & FetchChoices;

/** In a page: with the path of `relay` of postrider/express or postrider/fastify on your own server. */
export interface PageFetchOptions extends FetchChoices {
  relay: string;
  onRefused?: HandOverOptions["onRefused"];
}

/**
 * A `fetch` that answers a failed request with `202 {"queued":true,"id":"msg_…",…}` once Postrider has it. What cannot
 * be handed over fails as without it. Requests get an `Idempotency-Key`, which stays the same in all repeats.
 */
export function retryingFetch(options: ServerFetchOptions | PageFetchOptions): typeof fetch {
  const call = options.fetch ?? globalThis.fetch.bind(globalThis);
  const offer = "relay" in options ? offerToRelay(options, call) : offerToServer(options);
  const handsOver = options.handsOver ?? ((request: Request) => isHandedOver(request.method));
  return async (input, init) => {
    const request = new Request(input, init);
    if (!handsOver(request)) return await call(request);
    if (!request.headers.has("idempotency-key")) request.headers.set("idempotency-key", crypto.randomUUID());
    const body = new Uint8Array(await request.clone().arrayBuffer());
    const failed = (retryAfter?: number): FailedRequest | undefined => failedRequest(request, body, retryAfter);
    let response: Response;
    try {
      response = await call(request);
    } catch (error) {
      const queued = isWithdrawn(error) ? undefined : await handOver(offer, failed(), options.onRefused, request);
      if (queued === undefined) throw error;
      return answer(queued);
    }
    if (!isTemporary(response.status)) return response;
    const retryAfter = retryAfterSeconds(response.headers.get("retry-after"));
    const queued = await handOver(offer, failed(retryAfter), options.onRefused, request);
    if (queued === undefined) return response;
    await response.body?.cancel();
    return answer(queued);
  };
}

type Offer = (request: FailedRequest) => Promise<Queued | undefined>;

async function handOver(
  offer: Offer,
  failed: FailedRequest | undefined,
  onRefused: HandOverOptions["onRefused"],
  request: Request,
): Promise<Queued | undefined> {
  if (failed !== undefined) return await offer(failed);
  const { method, url } = request;
  onRefused?.(new HandOverError("binary", "body: found bytes that are not text, allowed: UTF-8"), { method, url, headers: {} });
  return undefined;
}

function failedRequest(request: Request, body: Uint8Array, retryAfter: number | undefined): FailedRequest | undefined {
  const text = textOf(body);
  if (text === undefined) return undefined;
  const { method, url } = request;
  const failed: FailedRequest = { method, url, headers: Object.fromEntries(request.headers) };
  if (body.length > 0) failed.body = text;
  if (retryAfter !== undefined) failed.retryAfter = retryAfter;
  return failed;
}

function offerToServer(options: ServerFetchOptions): Offer {
  const queue = new HandOver(options);
  return async (failed) => await queue.offer(failed);
}

function offerToRelay(options: PageFetchOptions, call: typeof fetch): Offer {
  if (typeof options.relay !== "string" || options.relay === "") {
    throw new InvalidArgumentError("relay", String(options.relay), "the path of the relay on your own server");
  }
  const queue = new LocalQueue();
  return async (failed) => {
    const init = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(failed) };
    try {
      const response = await queue.run(() => call(options.relay, init));
      if (response.status === 202) return (await response.json()) as Queued;
      throw new HandOverError("refused", `the relay answered ${response.status}`);
    } catch (error) {
      options.onRefused?.(refusal(error), failed);
      return undefined;
    }
  };
}

function answer(queued: Queued): Response {
  return Response.json(queued, { status: 202, headers: { "postrider-message": queued.id } });
}
