// Verifies webhooks of Postrider (Standard Webhooks): HMAC-SHA-256 (`v1`) and Ed25519 (`v1a`).

import { createHmac, createPublicKey, timingSafeEqual, verify } from "node:crypto";

import { InvalidArgumentError, WebhookError } from "./errors.js";

export interface WebhookRequest {
  /** Of Node, of Fetch, or a plain object. */
  headers: Headers | Record<string, string | string[] | undefined>;
  /** The body as it came, not parsed: the signature is over its bytes. */
  body: string | Uint8Array;
}

export interface VerifyOptions {
  /** `whsec_…`, or several of them during a rotation. */
  secret?: string | string[];
  /** `whpk_…`, if the server has `webhook.ed25519`. */
  publicKey?: string | string[];
  /** How far the clocks may be apart, in seconds; 300 if absent. */
  toleranceS?: number;
  now?: Date;
}

export interface Webhook<T = unknown> {
  /** The id of the delivery: the same in all attempts. */
  id: string;
  /** When this attempt was made. */
  sentAt: Date;
  /** The deadline of the message. */
  expiresAt: Date | undefined;
  /** The body, parsed if it is JSON. */
  payload: T;
}

/** The content of a genuine webhook; throws a `WebhookError` for all others. */
export function verifyWebhook<T = unknown>(request: WebhookRequest, options: VerifyOptions): Webhook<T> {
  const secrets = listOf(options.secret).map(secretBytes);
  const keys = listOf(options.publicKey).map(publicKeyOf);
  if (secrets.length + keys.length === 0) {
    throw new InvalidArgumentError("secret", "nothing", "whsec_… of `postrider webhook-secrets list`, or a publicKey");
  }
  const body = bytesOf(request.body);
  const id = headerOf(request, "webhook-id");
  const timestamp = headerOf(request, "webhook-timestamp");
  const signatures = headerOf(request, "webhook-signature").split(" ");
  checkTime(timestamp, options);
  const signed = Buffer.concat([Buffer.from(`${id}.${timestamp}.`), body]);
  const expected = secrets.map((secret) => createHmac("sha256", secret).update(signed).digest());
  const isGenuine = signatures.some((signature) => {
    const [version, text] = signature.split(",", 2);
    const given = Buffer.from(text ?? "", "base64");
    if (version === "v1") return expected.some((one) => one.length === given.length && timingSafeEqual(one, given));
    return version === "v1a" && given.length === 64 && keys.some((key) => verify(null, signed, key, given));
  });
  if (!isGenuine) {
    const remedy = "use the secret of this URL (`postrider webhook-secrets list --url URL`) and the body as it came";
    throw new WebhookError("signature", `webhook-signature: no signature matches; ${remedy}`);
  }
  const expires = Number(optionalHeader(request, "postrider-expires") ?? Number.NaN);
  return {
    id,
    sentAt: new Date(Number(timestamp) * 1000),
    expiresAt: Number.isFinite(expires) ? new Date(expires * 1000) : undefined,
    payload: parsed(body.toString("utf8")) as T,
  };
}

function checkTime(timestamp: string, options: VerifyOptions): void {
  if (!/^\d{1,12}$/.test(timestamp)) {
    throw new WebhookError("timestamp", `webhook-timestamp: found ${JSON.stringify(timestamp)}, allowed: seconds`);
  }
  const tolerance = options.toleranceS ?? 300;
  if (!(tolerance > 0)) {
    throw new InvalidArgumentError("toleranceS", String(tolerance), "a number of seconds above 0");
  }
  const nowS = (options.now?.getTime() ?? Date.now()) / 1000;
  const apart = Math.abs(nowS - Number(timestamp));
  if (!(apart <= tolerance)) {
    const detail = `${Math.round(apart)} s from this clock, allowed: ${tolerance} s`;
    throw new WebhookError("timestamp", `webhook-timestamp: found ${detail}; a repeat, or a wrong clock`);
  }
}

function listOf(value: string | string[] | undefined): string[] {
  return value === undefined ? [] : [value].flat();
}

function secretBytes(text: string): Buffer {
  const bytes = decoded(text, "whsec_");
  if (bytes === undefined || bytes.length < 24 || bytes.length > 64) {
    throw new InvalidArgumentError("secret", "something else", "whsec_ and 24 to 64 bytes in base64");
  }
  return bytes;
}

function publicKeyOf(text: string): ReturnType<typeof createPublicKey> {
  const bytes = decoded(text, "whpk_");
  if (bytes?.length !== 32) {
    throw new InvalidArgumentError("publicKey", "something else", "whpk_ and 32 bytes in base64");
  }
  const key = { kty: "OKP", crv: "Ed25519", x: bytes.toString("base64url") };
  return createPublicKey({ key, format: "jwk" });
}

function decoded(text: string, prefix: string): Buffer | undefined {
  if (!text.startsWith(prefix)) return undefined;
  const base64 = text.slice(prefix.length);
  return /^[A-Za-z0-9+/]+=*$/.test(base64) ? Buffer.from(base64, "base64") : undefined;
}

function bytesOf(body: string | Uint8Array): Buffer {
  if (typeof body === "string") return Buffer.from(body, "utf8");
  if (body instanceof Uint8Array) return Buffer.from(body.buffer, body.byteOffset, body.byteLength);
  const found = body === undefined ? "nothing" : "a parsed body";
  const allowed = "its bytes or text as they came, e.g. by express.raw({ type: () => true })";
  throw new InvalidArgumentError("body", found, allowed);
}

function headerOf(request: WebhookRequest, name: string): string {
  const value = optionalHeader(request, name);
  if (value === undefined || value === "") {
    throw new WebhookError("header", `${name}: found nothing, allowed: the header of a signed webhook`);
  }
  return value;
}

function optionalHeader({ headers }: WebhookRequest, name: string): string | undefined {
  if (headers instanceof Headers) return headers.get(name) ?? undefined;
  const entry = Object.entries(headers).find(([other]) => other.toLowerCase() === name);
  const value = entry?.[1];
  return Array.isArray(value) ? value[0] : value;
}

function parsed(text: string): unknown {
  try {
    return JSON.parse(text);
  } catch {
    return text;
  }
}
