// Hands a failed HTTP request to Postrider, which repeats it until the receiver takes it. Used by the adapters.

import type { Postrider } from "./client.js";
import { HandOverError, InvalidArgumentError } from "./errors.js";
import type { Accepted, Message, RetryPolicy } from "./types.js";

/** A request that can be made again: everything is text. */
export interface FailedRequest {
  method: string;
  url: string;
  headers: Record<string, string>;
  /** Absent if the request has none. */
  body?: string;
  /** Seconds after which the receiver wants to be called again. */
  retryAfter?: number;
}

export interface HandOverOptions {
  /** The client. Only on a server: a page uses `relay` of postrider/fetch. */
  postrider: Postrider;
  /** `env:NAME` or `file:PATH` of `http.credentials`: replaces `authorization`, cookies and API keys. */
  credential?: string;
  /** Headers that the repeated request does not need, such as `cookie`. */
  omitHeaders?: string[];
  /** What else the message gets. */
  message?: { class?: string; ttl_s?: number; tags?: string[]; priority?: "low" | "normal" | "high"; retry?: RetryPolicy };
  /** How many requests may wait to be handed over; 1000 if absent. */
  waitingMax?: number;
  /** Is told why a failed request was not handed over. Its caller gets the original failure. */
  onRefused?: (error: HandOverError, request: FailedRequest) => void;
}

/** What the caller of a handed over request gets, with status 202. */
export interface Queued extends Accepted {
  queued: true;
}

/** Requests that are handed over at the same time. */
const CONCURRENCY = 3;
/** Headers of the connection and of the proxies on its way. They are made anew. */
const PER_CONNECTION = new Set([
  "accept-encoding", "connection", "content-length", "expect", "forwarded", "host", "http2-settings", "keep-alive",
  "proxy-connection", "te", "trailer", "transfer-encoding", "upgrade", "via", "x-forwarded-for", "x-forwarded-host",
  "x-forwarded-port", "x-forwarded-proto", "x-real-ip",
]);
/** Headers that never leave this process: the server would refuse them. A credential replaces them. */
const SECRET = new Set(["authorization", "proxy-authorization", "cookie", "x-api-key", "x-auth-token"]);
const RETRY_AFTER_S_MAX = 3600;

/** A local queue: three at a time, in order, and a bounded number that waits. */
export class LocalQueue {
  readonly #waiting: (() => void)[] = [];
  readonly #waitingMax: number;
  #running = 0;

  constructor(waitingMax = 1000) {
    this.#waitingMax = waitingMax;
  }

  async run<T>(work: () => Promise<T>): Promise<T> {
    await this.#enter();
    try {
      return await work();
    } finally {
      this.#leave();
    }
  }

  async #enter(): Promise<void> {
    if (this.#running < CONCURRENCY) {
      this.#running += 1;
      return;
    }
    if (this.#waiting.length >= this.#waitingMax) {
      throw new HandOverError("full", `${this.#waitingMax} requests wait already (waitingMax)`);
    }
    await new Promise<void>((resolve) => this.#waiting.push(resolve));
  }

  /** The place goes to the next one that waits. */
  #leave(): void {
    const next = this.#waiting.shift();
    if (next === undefined) this.#running -= 1;
    else next();
  }
}

/** Hands requests to the server, through a local queue. */
export class HandOver {
  readonly #options: HandOverOptions;
  readonly #queue: LocalQueue;

  constructor(options: HandOverOptions) {
    if (options?.postrider === undefined) {
      throw new InvalidArgumentError("postrider", "nothing", "a client, new Postrider({ server, key })");
    }
    this.#options = options;
    this.#queue = new LocalQueue(options.waitingMax);
  }

  /** The id of the message, once it is on the server's disk; `undefined` if it was not handed over. */
  async offer(request: FailedRequest): Promise<Queued | undefined> {
    // Its owner may change the request while it waits.
    const copy = structuredClone(request);
    try {
      const message = messageOf(copy, this.#options);
      const accepted = await this.#queue.run(() => this.#options.postrider.send(message));
      return { queued: true, ...accepted };
    } catch (error) {
      this.#options.onRefused?.(refusal(error), copy);
      return undefined;
    }
  }
}

export function refusal(error: unknown): HandOverError {
  if (error instanceof HandOverError) return error;
  const text = error instanceof Error ? error.message : String(error);
  return new HandOverError("refused", `the request was not handed over: ${text}`, { cause: error });
}

/** The message that repeats a request. */
function messageOf(request: FailedRequest, options: HandOverOptions): Message {
  const headers = headersOf(request, options);
  const after = Math.min(request.retryAfter ?? 0, RETRY_AFTER_S_MAX);
  return {
    ...options.message,
    to: {
      address: {
        channel: "http",
        method: request.method,
        url: request.url,
        headers,
        ...(options.credential === undefined ? {} : { credential: options.credential }),
      },
    },
    content: { http: { body: request.body ?? "" } },
    // Not the caller's own key: a repeat with one other header would be a conflict. The receiver gets the caller's.
    idempotency_key: crypto.randomUUID(),
    ...(after > 0 ? { send_at: new Date(Date.now() + after * 1000).toISOString() } : {}),
  };
}

function headersOf(request: FailedRequest, options: HandOverOptions): Record<string, string> {
  const omitted = new Set((options.omitHeaders ?? []).map((name) => name.toLowerCase()));
  const kept: Record<string, string> = {};
  for (const [name, value] of Object.entries(request.headers)) {
    const lower = name.toLowerCase();
    if (PER_CONNECTION.has(lower) || omitted.has(lower)) continue;
    if (!SECRET.has(lower)) {
      kept[lower] = value;
    } else if (options.credential === undefined) {
      const remedy = "name a `credential`, or list it in `omitHeaders` if the receiver does not need it";
      throw new HandOverError("secret", `headers.${lower}: found a secret, which is never stored; ${remedy}`);
    }
  }
  return kept;
}
