// What Express and Fastify share: requests that this service could not handle, and requests of its pages.

import { HandOverError, InvalidArgumentError } from "./errors.js";
import { isHandedOver, textOf } from "./failure.js";
import { type FailedRequest, HandOver, type HandOverOptions, type Queued } from "./handover.js";

/** What both frameworks have of a request. */
export interface IncomingRequest {
  method: string;
  headers: Record<string, string | string[] | undefined>;
  /** As a body parser left it. */
  body?: unknown;
  /** Path and query. */
  path: string;
}

export interface IncomingOptions extends HandOverOptions {
  /** Where this service can be reached by Postrider, such as `https://api.example.com`. */
  target: string;
  /** Whether a failed request may be handed over; POST, PUT, PATCH and DELETE without a status below 500 if absent. */
  handsOver?: (error: unknown, request: { method: string; path: string }) => boolean;
}

export interface RelayOptions extends HandOverOptions {
  /** Origins or paths that pages may have called, such as `https://api.example.com/orders`. */
  allow: string[];
}

/** The answer of a relay. */
export interface RelayAnswer {
  status: 202 | 422 | 503;
  body: Queued | { title: string; detail: string };
}

/** Hands over requests that this service failed to handle. */
export class FailedIncoming {
  readonly #options: IncomingOptions;
  readonly #handOver: HandOver;
  readonly #target: string;

  constructor(options: IncomingOptions) {
    this.#handOver = new HandOver(options);
    this.#options = options;
    this.#target = checkedUrl("target", options.target).href.replace(/\/+$/, "");
  }

  /** The answer for the caller; `undefined` if it gets the error. */
  async offer(error: unknown, request: IncomingRequest): Promise<Queued | undefined> {
    if (isFromPostrider(request) || !this.#handsOver(error, request)) return undefined;
    const failed: FailedRequest = { method: request.method, url: `${this.#target}${request.path}`, headers: {} };
    for (const [name, value] of Object.entries(request.headers)) {
      if (value !== undefined) failed.headers[name] = Array.isArray(value) ? value.join(", ") : value;
    }
    const body = bodyText(request);
    if (body instanceof HandOverError) {
      this.#options.onRefused?.(body, failed);
      return undefined;
    }
    if (body !== undefined) failed.body = body;
    return await this.#handOver.offer(failed);
  }

  #handsOver(error: unknown, request: IncomingRequest): boolean {
    if (this.#options.handsOver !== undefined) return this.#options.handsOver(error, request);
    const { status, statusCode } = (error ?? {}) as { status?: unknown; statusCode?: unknown };
    const given = [status, statusCode].find((value) => typeof value === "number") as number | undefined;
    return isHandedOver(request.method) && (given ?? 500) >= 500;
  }
}

/** Postrider repeats its own requests by itself, if they get the error. */
function isFromPostrider(request: IncomingRequest): boolean {
  return request.headers["postrider-expires"] !== undefined;
}

/** The body as text. What a parser made of it is only the same for JSON. */
function bodyText({ headers, body }: IncomingRequest): string | undefined | HandOverError {
  const hasBody = headers["transfer-encoding"] !== undefined || Number(headers["content-length"] ?? 0) > 0;
  if (!hasBody) return undefined;
  const type = String(headers["content-type"] ?? "");
  // A text parser was there first, unless the JSON itself is only a text.
  if (typeof body === "string" && (!isJson(type) || /^\s*[[{]/.test(body))) return body;
  if (body instanceof Uint8Array) {
    return textOf(body) ?? new HandOverError("binary", "body: found bytes that are not text, allowed: UTF-8");
  }
  if (body !== undefined && isJson(type)) return JSON.stringify(body);
  const allowed = "JSON, or text or bytes of a parser such as express.text() or express.raw()";
  return new HandOverError("body", `body: found ${type || "no type"} that is not kept as it came, allowed: ${allowed}`);
}

function isJson(type: string): boolean {
  return /^application\/([\w.+-]+\+)?json\s*(;|$)/i.test(type);
}

/** Takes failed requests of pages, which have no key, and hands over those to allowed receivers. */
export class Relay {
  readonly #handOver: HandOver;
  readonly #allowed: URL[];

  constructor(options: RelayOptions) {
    if (!Array.isArray(options?.allow) || options.allow.length === 0) {
      const allowed = "origins or paths that pages may have called, such as https://api.example.com/orders";
      throw new InvalidArgumentError("allow", "nothing", allowed);
    }
    this.#allowed = options.allow.map((text, at) => checkedUrl(`allow[${at}]`, text));
    this.#handOver = new HandOver(options);
  }

  async answer(body: unknown): Promise<RelayAnswer> {
    const request = this.#checked(body);
    if (typeof request === "string") return refused(422, request);
    const queued = await this.#handOver.offer(request);
    if (queued !== undefined) return { status: 202, body: queued };
    return refused(503, "the server of this page has the reason");
  }

  /** The request, or what is wrong with it. */
  #checked(body: unknown): FailedRequest | string {
    if (typeof body !== "object" || body === null || body instanceof Uint8Array) {
      return "body: found no JSON object, allowed: what retryingFetch sends, parsed by a JSON body parser";
    }
    const { method, url, headers, body: text, retryAfter } = body as Record<string, unknown>;
    if (typeof method !== "string" || !isHandedOver(method)) return "method: allowed: POST, PUT, PATCH or DELETE";
    if (typeof url !== "string" || !URL.canParse(url)) return "url: allowed: a whole URL";
    const target = new URL(url);
    if (!this.#allowed.some((allowed) => covers(allowed, target))) {
      return `url: found ${target.origin}${target.pathname}, allowed: what the relay lists in \`allow\``;
    }
    const isText = typeof headers === "object" && headers !== null
      && Object.values(headers).every((value) => typeof value === "string");
    if (!isText) return "headers: allowed: an object of texts";
    if (text !== undefined && typeof text !== "string") return "body: allowed: text";
    const request: FailedRequest = { method, url: target.href, headers: headers as Record<string, string> };
    if (text !== undefined) request.body = text;
    if (typeof retryAfter === "number" && retryAfter >= 0) request.retryAfter = retryAfter;
    return request;
  }
}

function refused(status: 422 | 503, detail: string): RelayAnswer {
  return { status, body: { title: "The request was not handed over", detail } };
}

function covers(allowed: URL, target: URL): boolean {
  const path = allowed.pathname.replace(/\/+$/, "");
  const isBelow = target.pathname === path || target.pathname.startsWith(`${path}/`);
  return allowed.origin === target.origin && target.username === "" && target.password === "" && isBelow;
}

function checkedUrl(field: string, text: string): URL {
  const isUrl = typeof text === "string" && /^https?:\/\//.test(text) && URL.canParse(text);
  if (isUrl) return new URL(text);
  throw new InvalidArgumentError(field, JSON.stringify(text) ?? "nothing", "a URL such as https://api.example.com");
}
