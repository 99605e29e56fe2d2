// The bodies of the API, with the server's own names.

export type DeliveryState =
  | "queued" | "sending" | "retrying" | "parked" | "sent" | "delivered" | "seen" | "clicked" | "dismissed"
  | "gone" | "expired" | "failed" | "cancelled" | "suppressed";

export type DeadReason = "permanent" | "retries_exhausted" | "ttl" | "poison" | "ambiguous" | "refused";

export interface WebpushAddress { channel: "webpush"; endpoint: string; keys: { p256dh: string; auth: string } }
export interface WebhookAddress { channel: "webhook"; url: string; secrets?: string[] }
export interface HttpAddress {
  channel: "http";
  url: string;
  /** `POST` if absent. */
  method?: string;
  headers?: Record<string, string>;
  /** `env:NAME` or `file:PATH`, as the operator lists it in `http.credentials`. */
  credential?: string;
}
export interface FcmAddress { channel: "fcm"; token?: string; fid?: string; project?: string }
export interface ApnsAddress { channel: "apns"; token: string; topic: string; environment?: "production" | "sandbox" }
export interface EmailAddress { channel: "email"; email: string; name?: string }
export interface SmsAddress { channel: "sms"; phone: string }
export interface ChatAddress { channel: "chat"; url: string }
export interface TelegramAddress { channel: "telegram"; chat_id: string }
export interface NtfyAddress { channel: "ntfy"; topic: string }

export type Address =
  | WebpushAddress | WebhookAddress | HttpAddress | FcmAddress | ApnsAddress | EmailAddress | SmsAddress
  | ChatAddress | TelegramAddress | NtfyAddress;

/** Whom to reach: an address (or the id of one), a recipient, or several. */
export type To =
  | { address: Address | string; fallback?: (Address | string)[] }
  | { recipient: string }
  | { recipients: string[] };

/** The common fields, and per channel what replaces them. */
export interface Content {
  title?: string;
  body?: string;
  url?: string;
  data?: unknown;
  webpush?: { raw: string };
  webhook?: { payload: unknown };
  http?: { body: unknown };
  email?: Record<string, unknown>;
  sms?: { text: string };
  chat?: { payload: unknown };
  fcm?: { message: unknown };
  apns?: Record<string, unknown>;
  telegram?: Record<string, unknown>;
  ntfy?: Record<string, unknown>;
}

export interface RetryPolicy {
  kind?: "exponential" | "linear" | "fixed" | "schedule";
  base_ms?: number;
  cap_ms?: number;
  factor?: number;
  retries?: number;
  schedule_ms?: number[];
  jitter?: "none" | "additive" | "proportional" | "full" | "doubling" | "equal" | "decorrelated";
  jitter_ms?: number;
  jitter_share?: number;
}

export interface Message {
  to: To;
  content?: Content;
  template?: { name: string; locale?: string; variables: Record<string, unknown> };
  class?: string;
  /** 0 means: now or never. */
  ttl_s?: number;
  /** Not before this time (RFC 3339). */
  send_at?: string;
  collapse_key?: string;
  /** Makes a repeat harmless. The client makes one if there is none. */
  idempotency_key?: string;
  dedupe?: "content" | "none";
  priority?: "low" | "normal" | "high";
  tags?: string[];
  campaign?: string;
  campaign_run?: string;
  compliance?: string[];
  retry?: RetryPolicy;
}

export interface DeliveryRef { id: string; state: DeliveryState }

/** An accepted message: it is on the server's disk. */
export interface Accepted {
  id: string;
  deliveries: DeliveryRef[];
  /** The idempotency key was used before: this repeats the first answer. */
  duplicate: boolean;
  /** Of a list, how many addresses its campaign had reached before. */
  repeated?: number;
}

export interface MessageInfo {
  id: string;
  tenant: string;
  class: string;
  created_at: string;
  expires_at: string;
  ttl_s: number;
  idempotency_key?: string;
  collapse_key?: string;
  campaign?: string;
  campaign_run?: string;
  tags: string[];
  compliance: string[];
  /** The number of deliveries in each state. */
  states: Partial<Record<DeliveryState, number>>;
  /** The first hundred. */
  deliveries: DeliveryRef[];
  has_content: boolean;
}

export interface Attempt {
  number: number;
  at: string;
  latency_ms: number;
  outcome: string;
  decision: string;
  counted: boolean;
  status?: number;
  code?: string;
  detail?: string;
  retry_after?: string;
  next_at?: string;
  provider_id?: string;
  strike?: string;
}

export interface Delivery {
  id: string;
  message: string;
  tenant: string;
  channel: string;
  provider: string;
  class: string;
  state: DeliveryState;
  attempts: number;
  address?: string;
  address_hash: string;
  recipient?: string;
  reason?: DeadReason;
  held?: boolean;
  created_at: string;
  changed_at: string;
  due_at?: string;
  expires_at: string;
  log: Attempt[];
}

export interface Explanation {
  id: string;
  state: DeliveryState;
  summary: string;
  waits_for?: string;
  until?: string;
  ttl_left_s: number;
  gates: { gate: string; verdict: "open" | "waiting" | "closed"; detail: string }[];
  can_do: string[];
  delivery: Delivery;
}

export interface Page<T> { items: T[]; next: string | null }

export interface PageOptions { cursor?: string; /** 1 to 1000. */ limit?: number }

export interface DeliveryFilter {
  state?: DeliveryState;
  channel?: string;
  recipient?: string;
  message?: string;
  tag?: string;
  idempotency_key?: string;
  held?: boolean;
  since?: string;
  until?: string;
}

export interface DeadFilter {
  reason?: DeadReason;
  channel?: string;
  /** Part of the last attempt's code or detail. */
  error?: string;
  tag?: string;
  since?: string;
  until?: string;
}

export interface HeldFilter {
  channel?: string;
  message?: string;
  recipient?: string;
  tag?: string;
  since?: string;
  until?: string;
}

/** Either single deliveries or all that fit a filter. */
export type Choice<F> = { ids: string[] } | { filter: F };

export interface AddressInfo {
  id: string;
  channel: string;
  recipient?: string;
  status: "active" | "suspect" | "gone" | "expired";
  hash: string;
  created_at: string;
  gone_at?: string;
}

export interface VapidKey { id: string; public_key: string; active: boolean; created_at: string }

export interface WebhookSecret {
  id: string;
  /** `whsec_…` */
  secret: string;
  /** `whpk_…`, for `v1a` signatures. */
  public_key?: string;
  active: boolean;
  created_at: string;
  retired_at?: string;
}

/** Something that happened: a `kind` of `attempted`, `finished`, `lane` or `address`. */
export interface ServerEvent {
  kind: string;
  tenant: string;
  channel: string;
  class: string;
  delivery?: string;
  state?: DeliveryState;
  attempt?: number;
  outcome?: string;
  decision?: string;
  reason?: DeadReason;
  status?: number;
  [name: string]: unknown;
}
