// An axios instance whose failed requests are repeated by Postrider.

import { HandOverError, InvalidArgumentError, retryAfterSeconds } from "./errors.js";
import { isHandedOver, isTemporary, isWithdrawn, textOf } from "./failure.js";
import { type FailedRequest, HandOver, type HandOverOptions } from "./handover.js";

export type { FailedRequest, HandOverOptions, Queued } from "./handover.js";

/** What this needs of axios' own types; axios is no dependency of this package. */
export interface AxiosLike {
  getUri(config: object): string;
  interceptors: { request: Interceptors; response: Interceptors };
}

interface Interceptors {
  // The parameters of axios are types of axios, which cannot be named here.
  use(fulfilled: any, rejected?: any): number;
  eject(id: number): void;
}

interface AxiosConfig {
  method?: string;
  url?: string;
  data?: unknown;
  headers: { has(name: string): boolean; set(name: string, value: string): unknown; toJSON(): Record<string, unknown> };
}

interface AxiosFailure {
  config?: AxiosConfig;
  response?: { status: number; headers?: Record<string, unknown> };
}

export interface AxiosOptions extends HandOverOptions {
  /** Whether a request may be handed over; POST, PUT, PATCH and DELETE if absent. */
  handsOver?: (config: { method?: string; url?: string }) => boolean;
}

/**
 * From now on, a failed request of this instance resolves with status 202 and `{"queued":true,"id":"msg_…",…}` once
 * Postrider has it. What cannot be handed over fails as before. Returns a function that undoes this.
 */
export function handOverFailures(axios: AxiosLike, options: AxiosOptions): () => void {
  if (typeof axios?.interceptors?.response?.use !== "function") {
    throw new InvalidArgumentError("axios", "something else", "axios or an instance of axios.create()");
  }
  const queue = new HandOver(options);
  const handsOver = options.handsOver ?? (({ method = "GET" }) => isHandedOver(method));
  const addKey = (config: AxiosConfig): AxiosConfig => {
    const needsKey = handsOver(config) && !config.headers.has("idempotency-key");
    if (needsKey) config.headers.set("idempotency-key", crypto.randomUUID());
    return config;
  };
  const rescue = async (error: unknown): Promise<unknown> => {
    const { config, response } = (error ?? {}) as AxiosFailure;
    const isLost = response === undefined ? !isWithdrawn(error) : isTemporary(response.status);
    if (config === undefined || !isLost || !handsOver(config)) throw error;
    const failed = failedRequest(axios, config, response);
    const queued = failed instanceof HandOverError ? undefined : await queue.offer(failed);
    if (failed instanceof HandOverError) options.onRefused?.(failed, shortForm(axios, config));
    if (queued === undefined) throw error;
    const headers = { "content-type": "application/json", "postrider-message": queued.id };
    return { data: queued, status: 202, statusText: "Accepted", headers, config };
  };
  const first = axios.interceptors.request.use(addKey);
  const second = axios.interceptors.response.use(null, rescue);
  return () => {
    axios.interceptors.request.eject(first);
    axios.interceptors.response.eject(second);
  };
}

function shortForm(axios: AxiosLike, config: AxiosConfig): FailedRequest {
  return { method: (config.method ?? "GET").toUpperCase(), url: axios.getUri(config), headers: {} };
}

function failedRequest(
  axios: AxiosLike,
  config: AxiosConfig,
  response: AxiosFailure["response"],
): FailedRequest | HandOverError {
  const body = bodyText(config.data);
  if (body instanceof HandOverError) return body;
  const failed = shortForm(axios, config);
  for (const [name, value] of Object.entries(config.headers.toJSON())) {
    if (value !== undefined && value !== null && value !== false) failed.headers[name] = String(value);
  }
  if (body !== undefined) failed.body = body;
  const retryAfter = retryAfterSeconds(response?.headers?.["retry-after"] as string | undefined);
  if (retryAfter !== undefined) failed.retryAfter = retryAfter;
  return failed;
}

/** Axios has already turned objects and forms of parameters into text. */
function bodyText(data: unknown): string | undefined | HandOverError {
  if (data === undefined || data === null) return undefined;
  if (typeof data === "string") return data;
  const bytes = data instanceof ArrayBuffer ? new Uint8Array(data) : data;
  const text = bytes instanceof Uint8Array ? textOf(bytes) : undefined;
  return text ?? new HandOverError("binary", "data: found a stream or bytes that are not text, allowed: text or JSON");
}
