// Calls the server: deadline, retries and errors. Knows nothing about messages.

import { ApiError, apiError, ConnectionError, InvalidArgumentError, PostriderError, retryAfterSeconds } from "./errors.js";

export interface ClientOptions {
  /** The server's address; `POSTRIDER_SERVER` if absent, else `http://127.0.0.1:8080`. */
  server?: string;
  /** An API key; `POSTRIDER_KEY` if absent. */
  key?: string;
  /** The tenant, for keys that are for all tenants. */
  tenant?: string;
  /** How long one call may take, in milliseconds; 10 000 if absent. */
  timeoutMs?: number;
  /** How often a call that may be repeated is repeated; 3 if absent. */
  retries?: number;
  /** The longest wait before a repeat, in milliseconds; 30 000 if absent. */
  retryDelayMsMax?: number;
  /** Another `fetch`, e.g. with a proxy. */
  fetch?: typeof fetch;
}

export interface CallOptions {
  signal?: AbortSignal;
  timeoutMs?: number;
  retries?: number;
}

export interface Call extends CallOptions {
  method: "GET" | "POST" | "PUT" | "DELETE";
  path: string;
  query?: object;
  body?: unknown;
  /** A body that is sent as it is. */
  text?: { type: string; body: string };
  headers?: Record<string, string>;
  /** Whether doing it twice does no more than doing it once. */
  repeatable?: boolean;
}

/** The first wait before a repeat. It doubles from repeat to repeat. */
const DELAY_MS = 200;
/** Errors of a connection that was never made: nothing was sent. */
const NEVER_SENT = new Set(["ECONNREFUSED", "ENOTFOUND", "EAI_AGAIN", "UND_ERR_CONNECT_TIMEOUT"]);

export class Transport {
  readonly retries: number;
  readonly #server: string;
  readonly #headers: Record<string, string>;
  readonly #timeoutMs: number;
  readonly #delayMsMax: number;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions) {
    refuseBrowsers();
    const env = globalThis.process?.env ?? {};
    this.#server = checkedServer(options.server ?? env["POSTRIDER_SERVER"] ?? "http://127.0.0.1:8080");
    const key = checkedKey(options.key ?? env["POSTRIDER_KEY"]);
    this.#headers = { authorization: `Bearer ${key}` };
    if (options.tenant !== undefined) this.#headers["postrider-tenant"] = options.tenant;
    this.#timeoutMs = checkedNumber("timeoutMs", options.timeoutMs, 10_000, 1);
    this.retries = checkedNumber("retries", options.retries, 3, 0);
    this.#delayMsMax = checkedNumber("retryDelayMsMax", options.retryDelayMsMax, 30_000, 0);
    this.#fetch = options.fetch ?? fetch;
  }

  /** The JSON of the answer; `undefined` if it has no body. */
  async json<T>(call: Call): Promise<T> {
    const text = await this.text(call);
    return (text === "" ? undefined : JSON.parse(text)) as T;
  }

  /** The body of the answer. Repeats the call where that is safe. */
  async text(call: Call): Promise<string> {
    const retries = checkedNumber("retries", call.retries, this.retries, 0);
    for (let number = 0; ; number += 1) {
      try {
        return await this.#once(call);
      } catch (error) {
        if (number >= retries || !mayRepeat(error, call.repeatable ?? call.method === "GET")) throw error;
        const asked = error instanceof ApiError ? error.retryAfter : undefined;
        if (!(await this.pause(number, asked, call.signal))) throw error;
      }
    }
  }

  /**
   * Waits before a repeat: as long as the server asks, and a random time more. Answers false at once if the server
   * asks for a longer wait than allowed.
   */
  async pause(number: number, askedS: number | undefined, signal: AbortSignal | undefined): Promise<boolean> {
    if (askedS !== undefined && askedS * 1000 > this.#delayMsMax) return false;
    const backoff = Math.min(DELAY_MS * 2 ** number, this.#delayMsMax);
    const jittered = backoff * (0.5 + Math.random() / 2);
    await sleep(askedS === undefined ? jittered : askedS * 1000 + Math.random() * DELAY_MS, signal);
    return true;
  }

  /** An answer whose body is read by the caller. It has no deadline of its own. */
  async stream(call: Call): Promise<Response> {
    const response = await this.#send(call, call.signal);
    if (!response.ok) throw await errorOf(response);
    return response;
  }

  async #once(call: Call): Promise<string> {
    const deadline = new Deadline(checkedNumber("timeoutMs", call.timeoutMs, this.#timeoutMs, 1), call.signal);
    try {
      const response = await this.#send(call, deadline.signal);
      if (!response.ok) throw await errorOf(response);
      return await response.text();
    } catch (error) {
      throw deadline.explained(error);
    } finally {
      deadline.clear();
    }
  }

  async #send(call: Call, signal: AbortSignal | undefined): Promise<Response> {
    const headers: Record<string, string> = { ...this.#headers, ...call.headers };
    const init: RequestInit = { method: call.method, headers, redirect: "error" };
    if (call.text !== undefined) {
      headers["content-type"] = call.text.type;
      init.body = call.text.body;
    } else if (call.body !== undefined) {
      headers["content-type"] = "application/json";
      init.body = JSON.stringify(call.body);
    }
    if (signal !== undefined) init.signal = signal;
    try {
      return await this.#fetch(`${this.#server}${call.path}${queryOf(call.query)}`, init);
    } catch (error) {
      if (signal?.aborted === true) throw error;
      throw new ConnectionError("unreachable", `${this.#server} gives no answer (${reasonOf(error)})`, { cause: error });
    }
  }
}

/** Ends a call after a time, or with the caller's own signal. */
class Deadline {
  readonly #controller = new AbortController();
  readonly #timer: ReturnType<typeof setTimeout>;
  readonly #timeoutMs: number;
  readonly #outer: AbortSignal | undefined;
  #over = false;

  constructor(timeoutMs: number, outer: AbortSignal | undefined) {
    outer?.throwIfAborted();
    this.#timeoutMs = timeoutMs;
    this.#outer = outer;
    this.#timer = setTimeout(() => {
      this.#over = true;
      this.#controller.abort();
    }, timeoutMs);
    outer?.addEventListener("abort", this.#abort, { once: true });
  }

  get signal(): AbortSignal {
    return this.#controller.signal;
  }

  /** What ended the call: the caller, the deadline, or the error itself. */
  explained(error: unknown): unknown {
    if (this.#outer?.aborted === true) return this.#outer.reason;
    if (this.#over) return new ConnectionError("timeout", `no answer within ${this.#timeoutMs} ms (timeoutMs)`);
    if (error instanceof PostriderError) return error;
    return new ConnectionError("unreachable", `the answer broke off (${reasonOf(error)})`, { cause: error });
  }

  clear(): void {
    clearTimeout(this.#timer);
    this.#outer?.removeEventListener("abort", this.#abort);
  }

  readonly #abort = (): void => this.#controller.abort(this.#outer?.reason);
}

/** Whether a call may be made again after this error. */
function mayRepeat(error: unknown, repeatable: boolean): boolean {
  if (error instanceof ApiError) {
    if (error.status === 429) return true;
    return repeatable && (error.status === 408 || error.status >= 500);
  }
  if (!(error instanceof ConnectionError)) return false;
  return repeatable || NEVER_SENT.has(causeCode(error.cause) ?? "");
}

function causeCode(error: unknown): string | undefined {
  const { code, cause } = (error ?? {}) as { code?: unknown; cause?: unknown };
  if (typeof code === "string") return code;
  return cause === undefined ? undefined : causeCode(cause);
}

function reasonOf(error: unknown): string {
  return causeCode(error) ?? (error instanceof Error ? error.message : String(error));
}

async function errorOf(response: Response): Promise<ApiError> {
  const text = await response.text();
  return apiError(response.status, text, retryAfterSeconds(response.headers.get("retry-after")));
}

function queryOf(query: object | undefined): string {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== undefined && value !== null);
  if (given.length === 0) return "";
  return `?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
}

/** Waits, unless the signal ends it. */
export function sleep(ms: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted === true) return reject(signal.reason);
    const stop = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(() => {
      signal?.removeEventListener("abort", stop);
      resolve();
    }, ms);
    signal?.addEventListener("abort", stop, { once: true });
  });
}

/** A key in a page is a key of everybody who opens the page. */
function refuseBrowsers(): void {
  const scope = globalThis as { document?: unknown; WorkerGlobalScope?: unknown };
  if (scope.document !== undefined || scope.WorkerGlobalScope !== undefined) {
    const allowed = "a server only; in a page, use postrider/fetch with `relay`";
    throw new InvalidArgumentError("key", "an API key in a browser", allowed);
  }
}

function checkedServer(text: string): string {
  const allowed = "http:// or https://, a host and nothing but a path behind it, such as https://postrider.example.com";
  if (!URL.canParse(text)) throw new InvalidArgumentError("server", JSON.stringify(text), allowed);
  const url = new URL(text);
  const isPlain = url.search === "" && url.hash === "" && url.username === "" && url.password === "";
  if (!["http:", "https:"].includes(url.protocol) || !isPlain) {
    throw new InvalidArgumentError("server", `${url.protocol}//${url.host} with something else`, allowed);
  }
  return url.href.replace(/\/+$/, "");
}

function checkedKey(key: string | undefined): string {
  const allowed = "a key of `postrider keys create`, here or in POSTRIDER_KEY";
  if (key === undefined || key === "") throw new InvalidArgumentError("key", "nothing", allowed);
  if (!/^[\x21-\x7e]+$/.test(key)) throw new InvalidArgumentError("key", "spaces or other characters", allowed);
  return key;
}

export function checkedNumber(field: string, value: number | undefined, otherwise: number, least: number): number {
  if (value === undefined) return otherwise;
  if (!Number.isFinite(value) || value < least) {
    throw new InvalidArgumentError(field, String(value), `a number of at least ${least}`);
  }
  return value;
}
