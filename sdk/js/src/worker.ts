// A service worker that shows what Postrider sends and reports what became of it. Shows a notification for every push:
// browsers punish those that show nothing. One file without imports, because classic workers import nothing.

export interface WorkerOptions {
  /** The title of a push that has none, such as the name of your site. */
  title: string;
  /** Shown in place of a push that came too late. It must still be true then. */
  stale?: { title?: string; body: string };
  icon?: string;
  badge?: string;
  /** Origins that a click may open, beside the worker's own. */
  origins?: string[];
  /** Where a click leads that has no allowed address; `/` if absent. */
  home?: string;
  /**
   * Gets `POST {"id","event","at"}` as text/plain. If absent, the URL that the push has, which is that of Postrider
   * itself where it knows its public URL. `false`: nothing is reported.
   */
  receipts?: string | false;
}

export type ReceiptEvent = "displayed" | "late" | "clicked" | "dismissed";

/** What Postrider sends, if the message has no text of its own. Times are milliseconds since 1970. */
interface Push {
  id?: string;
  title?: string;
  body?: string;
  url?: string;
  data?: unknown;
  expires_at?: number;
  /** Where its receipts go. */
  receipt?: string;
}

interface Receipt {
  /** Absent in what older versions kept. */
  url?: string;
  id: string;
  event: ReceiptEvent;
  at: number;
}

interface ExtendableEventLike {
  waitUntil(work: Promise<unknown>): void;
}

interface PushEventLike extends ExtendableEventLike {
  data: { text(): string } | null;
}

interface NotificationEventLike extends ExtendableEventLike {
  notification: { close(): void; data: unknown };
}

interface WindowLike {
  url: string;
  focus(): Promise<unknown>;
}

/** What this needs of `self` in a service worker. */
export interface WorkerScope {
  location: { origin: string };
  registration: { showNotification(title: string, options: object): Promise<void> };
  clients: { matchAll(options: object): Promise<readonly unknown[]>; openWindow(url: string): Promise<unknown> };
  indexedDB?: IDBFactory;
  fetch: typeof fetch;
  // The listeners of each browser type have types of their own.
  addEventListener(type: string, listener: (event: any) => void): void;
}

const STALE = "No longer current";
const RECEIPTS_MAX = 50;
/** What became of the try to send a receipt. */
const enum Sent {
  /** It was taken, or it is refused for good. */
  Done,
  /** The delivery is still being sent: only this one waits. */
  Early,
  Failed,
}

/** Listens to pushes and clicks. Call it once, when the worker starts. */
export function startWorker(options: WorkerOptions, scope: WorkerScope = globalThis as unknown as WorkerScope): void {
  if (typeof options?.title !== "string" || options.title === "") {
    throw new TypeError("title: found nothing, allowed: a title for pushes that have none");
  }
  const outbox = new Outbox(options.receipts, scope);
  scope.addEventListener("push", (event: PushEventLike) => event.waitUntil(show(event, options, scope, outbox)));
  scope.addEventListener("notificationclick", (event: NotificationEventLike) => {
    event.notification.close();
    const opened = open(event.notification.data, options, scope);
    event.waitUntil(Promise.all([opened, outbox.report(event.notification.data, "clicked")]));
  });
  scope.addEventListener("notificationclose", (event: NotificationEventLike) =>
    event.waitUntil(outbox.report(event.notification.data, "dismissed")));
  // Receipts that did not get through are tried again whenever the worker starts anew.
  scope.addEventListener("activate", (event: ExtendableEventLike) => event.waitUntil(outbox.flush()));
}

async function show(event: PushEventLike, options: WorkerOptions, scope: WorkerScope, outbox: Outbox): Promise<void> {
  const push = read(event);
  const isLate = push.expires_at !== undefined && push.expires_at <= Date.now();
  const stale = options.stale ?? { body: STALE };
  const title = isLate ? stale.title ?? options.title : push.title ?? options.title;
  const body = isLate ? stale.body : push.body;
  const data = { id: push.id, url: isLate ? undefined : push.url, data: push.data, receipt: push.receipt };
  const { icon, badge } = options;
  // The same delivery twice is shown once.
  await scope.registration.showNotification(title, { body, icon, badge, data, tag: push.id });
  await outbox.report(data, isLate ? "late" : "displayed");
}

/** What is no JSON of Postrider is shown as text. Fields of a wrong type are left out. */
function read(event: PushEventLike): Push {
  const text = event.data?.text() ?? "";
  let value: Record<string, unknown>;
  try {
    const parsed = JSON.parse(text) as unknown;
    if (typeof parsed !== "object" || parsed === null) return { body: text };
    value = parsed as Record<string, unknown>;
  } catch {
    return text === "" ? {} : { body: text };
  }
  const push: Push = { data: value["data"] };
  for (const name of ["id", "title", "body", "url", "receipt"] as const) {
    const field = value[name];
    if (typeof field === "string" && field !== "") push[name] = field;
  }
  if (typeof value["expires_at"] === "number") push.expires_at = value["expires_at"];
  return push;
}

/** Opens the address of a notification, in its window if there is one. */
async function open(data: unknown, options: WorkerOptions, scope: WorkerScope): Promise<void> {
  const own = scope.location.origin;
  const allowed = new Set([own, ...(options.origins ?? []).map((text) => new URL(text).origin)]);
  const home = new URL(options.home ?? "/", own).href;
  const wish = (data as { url?: unknown } | null)?.url;
  const url = typeof wish === "string" && URL.canParse(wish, own) ? new URL(wish, own) : undefined;
  const target = url !== undefined && allowed.has(url.origin) ? url.href : home;
  const windows = (await scope.clients.matchAll({ type: "window", includeUncontrolled: true })) as WindowLike[];
  const same = windows.find((window) => window.url === target);
  await (same === undefined ? scope.clients.openWindow(target) : same.focus());
}

/** Receipts on their way: at most 50 are kept until they get through. */
class Outbox {
  readonly #url: string | false | undefined;
  readonly #scope: WorkerScope;
  #flushing: Promise<void> | undefined;

  constructor(url: string | false | undefined, scope: WorkerScope) {
    this.#url = url;
    this.#scope = scope;
  }

  /** Never fails: a receipt must not cost a notification or a click. */
  async report(data: unknown, event: ReceiptEvent): Promise<void> {
    const { id, receipt: given } = (data ?? {}) as { id?: unknown; receipt?: unknown };
    const url = this.#url ?? (isReceiver(given) ? given : false);
    if (url === false || typeof id !== "string") return;
    const receipt: Receipt = { url, id, event, at: Date.now() };
    try {
      await this.#keep(receipt);
    } catch {
      // Without a database, there is one try.
      await this.#send(receipt);
      return;
    }
    await this.flush();
  }

  /** Sends what is kept, oldest first, until one does not get through. */
  async flush(): Promise<void> {
    if (this.#url === false) return;
    // One that began before may have read the list without the newest.
    await this.#flushing;
    this.#flushing ??= this.#sendKept().catch(() => undefined).finally(() => (this.#flushing = undefined));
    await this.#flushing;
  }

  async #sendKept(): Promise<void> {
    const database = await this.#database();
    const read = database.transaction("receipts").objectStore("receipts");
    const [keys, receipts] = await Promise.all([done(read.getAllKeys()), done(read.getAll())]);
    for (const [at, key] of keys.entries()) {
      const sent = await this.#send(receipts[at] as Receipt);
      if (sent === Sent.Failed) break;
      if (sent === Sent.Early) continue;
      await done(database.transaction("receipts", "readwrite").objectStore("receipts").delete(key));
    }
    database.close();
  }

  async #send({ url = this.#url || undefined, ...receipt }: Receipt): Promise<Sent> {
    if (url === undefined) return Sent.Done;
    try {
      const { status } = await this.#scope.fetch(url, {
        method: "POST",
        // This type needs no preflight.
        headers: { "content-type": "text/plain" },
        body: JSON.stringify(receipt),
        keepalive: true,
        credentials: "omit",
      });
      if (status === 409) return Sent.Early;
      return status < 500 && status !== 429 && status !== 408 ? Sent.Done : Sent.Failed;
    } catch {
      return Sent.Failed;
    }
  }

  async #keep(receipt: Receipt): Promise<void> {
    const database = await this.#database();
    const store = database.transaction("receipts", "readwrite").objectStore("receipts");
    await done(store.add(receipt));
    const keys = await done(store.getAllKeys());
    for (const key of keys.slice(0, Math.max(0, keys.length - RECEIPTS_MAX))) await done(store.delete(key));
    database.close();
  }

  async #database(): Promise<IDBDatabase> {
    if (this.#scope.indexedDB === undefined) throw new Error("no database");
    const request = this.#scope.indexedDB.open("postrider", 1);
    request.onupgradeneeded = () => request.result.createObjectStore("receipts", { autoIncrement: true });
    return await done(request);
  }
}

/** Only over TLS, or to this machine. */
function isReceiver(given: unknown): given is string {
  if (typeof given !== "string" || !URL.canParse(given)) return false;
  const { protocol, hostname } = new URL(given);
  return protocol === "https:" || (protocol === "http:" && ["localhost", "127.0.0.1", "[::1]"].includes(hostname));
}

function done<T>(request: IDBRequest<T>): Promise<T> {
  return new Promise((resolve, reject) => {
    request.onsuccess = () => resolve(request.result);
    request.onerror = () => reject(request.error);
  });
}
