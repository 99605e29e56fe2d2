// The client of the API: one method per call.

import { batch, type BatchOptions, type BatchResult, withKey } from "./batch.js";
import { events } from "./events.js";
import { InvalidArgumentError } from "./errors.js";
import { type Call, type CallOptions, type ClientOptions, Transport } from "./transport.js";
import type {
  Accepted, Address, AddressInfo, Choice, DeadFilter, Delivery, DeliveryFilter, Explanation, HeldFilter, Message,
  MessageInfo, Page, PageOptions, RetryPolicy, ServerEvent, VapidKey, WebhookSecret,
} from "./types.js";

export class Postrider {
  readonly messages: MessageCalls;
  readonly deliveries: DeliveryCalls;
  readonly deadLetters: DeadLetterCalls;
  readonly addresses: AddressCalls;
  readonly #transport: Transport;

  constructor(options: ClientOptions = {}) {
    this.#transport = new Transport(options);
    this.messages = new MessageCalls(this.#transport);
    this.deliveries = new DeliveryCalls(this.#transport);
    this.deadLetters = new DeadLetterCalls(this.#transport);
    this.addresses = new AddressCalls(this.#transport);
  }

  /** Hands in one message. When this returns, the message is on the server's disk. */
  async send(message: Message, options: CallOptions = {}): Promise<Accepted> {
    if (typeof message !== "object" || message === null) {
      throw new InvalidArgumentError("message", String(message), "an object with `to` and `content`");
    }
    const call = { ...options, method: "POST", path: "/v1/messages", repeatable: true } as const;
    return await this.#transport.json({ ...call, body: withKey(message) });
  }

  /**
   * Hands in many messages: one result each, in order. A refused message is a result, too; an error means that the
   * messages without a result may or may not have been accepted.
   */
  batch(
    messages: Iterable<Message> | AsyncIterable<Message>,
    options: BatchOptions = {},
  ): AsyncGenerator<BatchResult, void, undefined> {
    return batch(this.#transport, messages, options);
  }

  /** What happens from now on, until the signal or the loop ends it. Events are not stored by the server. */
  events(options: { signal?: AbortSignal } = {}): AsyncGenerator<ServerEvent, void, undefined> {
    return events(this.#transport, options.signal);
  }

  /** The VAPID keys of Web Push, the active one first. */
  async vapidKeys(options: CallOptions = {}): Promise<VapidKey[]> {
    const list = await this.#transport.json<{ keys: VapidKey[] }>({ ...options, method: "GET", path: "/v1/vapid" });
    return list.keys;
  }

  /** The secrets that webhooks are signed with, the active one first: those of one receiver, or the tenant's own. */
  async webhookSecrets(url?: string, options: CallOptions = {}): Promise<WebhookSecret[]> {
    const call = { ...options, method: "GET", path: "/v1/webhook-secrets", query: { url } } as const;
    return (await this.#transport.json<{ secrets: WebhookSecret[] }>(call)).secrets;
  }

  /** Any other call of the API, such as `{ method: "GET", path: "/v1/stats" }`. */
  async call<T = unknown>(call: Call): Promise<T> {
    return await this.#transport.json(call);
  }
}

class MessageCalls {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** The message with the number of its deliveries in each state. */
  async get(id: string, options: CallOptions = {}): Promise<MessageInfo> {
    return await this.#transport.json({ ...options, method: "GET", path: `/v1/messages/${segment("id", id)}` });
  }

  /** Cancels what is not sent yet. */
  async cancel(
    id: string,
    options: CallOptions = {},
  ): Promise<{ cancelled: number; in_flight: number; already_final: number }> {
    const path = `/v1/messages/${segment("id", id)}/cancel`;
    return await this.#transport.json({ ...options, method: "POST", path, repeatable: true });
  }

  /** The stored content. Needs a key with the scope `content`. */
  async content(id: string, options: CallOptions = {}): Promise<unknown> {
    return await this.#transport.json({ ...options, method: "GET", path: `/v1/messages/${segment("id", id)}/content` });
  }
}

class DeliveryCalls {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** The delivery with all its attempts. */
  async get(id: string, options: CallOptions = {}): Promise<Delivery> {
    return await this.#transport.json({ ...options, method: "GET", path: `/v1/deliveries/${segment("id", id)}` });
  }

  /** Why it is in its state, what it waits for, and what can be done. */
  async explain(id: string, options: CallOptions = {}): Promise<Explanation> {
    const path = `/v1/deliveries/${segment("id", id)}/explain`;
    return await this.#transport.json({ ...options, method: "GET", path });
  }

  /** One page, newest first. */
  async page(filter: DeliveryFilter & PageOptions = {}, options: CallOptions = {}): Promise<Page<Delivery>> {
    return await this.#transport.json({ ...options, method: "GET", path: "/v1/deliveries", query: filter });
  }

  /** All of them, newest first, page by page. */
  list(filter: DeliveryFilter & PageOptions = {}, options: CallOptions = {}): AsyncGenerator<Delivery, void, undefined> {
    return allPages((page) => this.page(page, options), filter);
  }

  /** Releases deliveries that are held since a restore. */
  async release(
    choice: Choice<HeldFilter> & { rate_per_s?: number },
    options: CallOptions = {},
  ): Promise<{ released: number }> {
    return await this.#transport.json({ ...options, method: "POST", path: "/v1/deliveries/release", body: choice });
  }
}

class DeadLetterCalls {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** One page, newest first. */
  async page(filter: DeadFilter & PageOptions = {}, options: CallOptions = {}): Promise<Page<Delivery>> {
    return await this.#transport.json({ ...options, method: "GET", path: "/v1/dead-letters", query: filter });
  }

  /** All of them, newest first, page by page. */
  list(filter: DeadFilter & PageOptions = {}, options: CallOptions = {}): AsyncGenerator<Delivery, void, undefined> {
    return allPages((page) => this.page(page, options), filter);
  }

  /** Sends them again. Without an answer, this is not repeated: look at the list first. */
  async replay(
    choice: Choice<DeadFilter> & { rate_per_s?: number; ttl_s?: number; retry?: RetryPolicy },
    options: CallOptions = {},
  ): Promise<{ replayed: number }> {
    return await this.#transport.json({ ...options, method: "POST", path: "/v1/dead-letters/replay", body: choice });
  }

  /** Deletes them for good. */
  async discard(choice: Choice<DeadFilter>, options: CallOptions = {}): Promise<{ discarded: number }> {
    return await this.#transport.json({ ...options, method: "POST", path: "/v1/dead-letters/discard", body: choice });
  }
}

class AddressCalls {
  readonly #transport: Transport;

  constructor(transport: Transport) {
    this.#transport = transport;
  }

  /** Registers an address of a recipient; a known one is returned as it is. */
  async add(address: Address & { recipient: string }, options: CallOptions = {}): Promise<AddressInfo> {
    const call = { ...options, method: "POST", path: "/v1/addresses", repeatable: true } as const;
    return await this.#transport.json({ ...call, body: address });
  }

  async get(id: string, options: CallOptions = {}): Promise<AddressInfo> {
    return await this.#transport.json({ ...options, method: "GET", path: `/v1/addresses/${segment("id", id)}` });
  }

  async page(filter: { recipient?: string } & PageOptions = {}, options: CallOptions = {}): Promise<Page<AddressInfo>> {
    return await this.#transport.json({ ...options, method: "GET", path: "/v1/addresses", query: filter });
  }

  list(
    filter: { recipient?: string } & PageOptions = {},
    options: CallOptions = {},
  ): AsyncGenerator<AddressInfo, void, undefined> {
    return allPages((page) => this.page(page, options), filter);
  }

  /** Deletes it, and cancels what is queued for it. */
  async delete(id: string, options: CallOptions = {}): Promise<void> {
    await this.#transport.json({ ...options, method: "DELETE", path: `/v1/addresses/${segment("id", id)}` });
  }
}

async function* allPages<T, F extends PageOptions>(
  page: (filter: F) => Promise<Page<T>>,
  filter: F,
): AsyncGenerator<T, void, undefined> {
  for (let at = filter; ; ) {
    const { items, next } = await page(at);
    yield* items;
    if (next === null || next === undefined) return;
    at = { ...at, cursor: next };
  }
}

function segment(field: string, id: string): string {
  if (typeof id !== "string" || id === "") throw new InvalidArgumentError(field, JSON.stringify(id), "an id");
  return encodeURIComponent(id);
}
