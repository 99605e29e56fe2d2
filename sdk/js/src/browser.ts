// Subscribes a page's visitor to Web Push, and keeps the subscription right. Holds no key and never asks by itself.

/** `needs-install`: iOS allows push only to a web app on the home screen. */
export type PushState = "unsupported" | "needs-install" | "blocked" | "askable" | "subscribed";

export interface PushOptions {
  /** The path of the service worker, such as `/sw.js`. */
  worker: string;
  /** Whether the worker is a module; a classic script if absent. */
  module?: boolean;
  /** The active VAPID public key, or how to get it from your server. */
  applicationServerKey: string | (() => Promise<string>);
  /**
   * Your server's address for subscriptions. It gets `POST {"subscription":{…},"replaces":endpoint or null}` and, for
   * somebody who leaves, `DELETE {"endpoint":…}`.
   */
  register: string;
  /** Who is signed in. For another account, the subscription is registered again. */
  account?: string;
}

/** What is remembered of the last registration. */
interface Registered {
  endpoint: string;
  account: string | null;
}

type Scope = Pick<typeof globalThis, "navigator" | "fetch" | "localStorage" | "atob"> & {
  isSecureContext: boolean;
  Notification?: typeof Notification;
  PushManager?: unknown;
  matchMedia?: typeof matchMedia;
};

const MEMORY = "postrider:push";

export class PushClient {
  readonly #options: PushOptions;
  readonly #scope: Scope;

  /** The second parameter is for tests. */
  constructor(options: PushOptions, scope: Scope = globalThis) {
    for (const field of ["worker", "register"] as const) {
      if (typeof options?.[field] !== "string" || options[field] === "") {
        throw new TypeError(`${field}: found ${String(options?.[field])}, allowed: a path such as /push`);
      }
    }
    this.#options = options;
    this.#scope = scope;
  }

  async state(): Promise<PushState> {
    const fixed = this.#fixedState();
    if (fixed !== undefined) return fixed;
    const isGranted = this.#scope.Notification?.permission === "granted";
    return isGranted && (await this.#current()) !== null ? "subscribed" : "askable";
  }

  /** Asks for permission and subscribes. Call it from a click, before any `await`: browsers require that. */
  async subscribe(): Promise<PushState> {
    const fixed = this.#fixedState();
    if (fixed !== undefined) return fixed;
    const permission = await this.#scope.Notification?.requestPermission();
    if (permission !== "granted") return this.#fixedState() ?? "askable";
    await this.#scope.navigator.serviceWorker.register(this.#options.worker, {
      type: this.#options.module === true ? "module" : "classic",
    });
    await this.#align();
    return "subscribed";
  }

  /**
   * To be called on every page load: registers a subscription that changed, replaces one of an old key or one that the
   * browser lost, and signs one off whose permission is gone. Subscribes nobody who did not ask for it.
   */
  async reconcile(): Promise<PushState> {
    const remembered = this.#remembered();
    const fixed = this.#fixedState();
    if (fixed !== undefined || this.#scope.Notification?.permission !== "granted") {
      if (remembered !== undefined) await this.#signOff(remembered.endpoint);
      return fixed ?? "askable";
    }
    if (remembered === undefined && (await this.#current()) === null) return "askable";
    await this.#align();
    return "subscribed";
  }

  /** Ends the subscription here and at your server. */
  async leave(): Promise<PushState> {
    const current = this.#fixedState() === undefined ? await this.#current() : null;
    const endpoint = current?.endpoint ?? this.#remembered()?.endpoint;
    await current?.unsubscribe();
    if (endpoint !== undefined) await this.#signOff(endpoint);
    return await this.state();
  }

  /** A state that neither subscribing nor leaving changes. */
  #fixedState(): PushState | undefined {
    const { navigator, isSecureContext, Notification, PushManager } = this.#scope;
    const isAble = "serviceWorker" in navigator && PushManager !== undefined && Notification !== undefined;
    if (!isSecureContext) return "unsupported";
    if (!isAble) return this.#canBeInstalled() ? "needs-install" : "unsupported";
    return Notification.permission === "denied" ? "blocked" : undefined;
  }

  /** iOS from 16.4 on, in a tab. An iPad calls itself a Mac. */
  #canBeInstalled(): boolean {
    const { navigator, matchMedia } = this.#scope;
    const { userAgent, maxTouchPoints = 0 } = navigator;
    const isIos = /iPhone|iPad|iPod/.test(userAgent) || (/Macintosh/.test(userAgent) && maxTouchPoints > 1);
    const isApp = (navigator as { standalone?: boolean }).standalone === true
      || matchMedia?.call(this.#scope, "(display-mode: standalone)").matches === true;
    const [, major = "0", minor = "0"] = /(?:iPhone OS|CPU OS|Version\/)\s?(\d+)[._](\d+)/.exec(userAgent) ?? [];
    return isIos && !isApp && Number(major) * 100 + Number(minor) >= 1604;
  }

  async #current(): Promise<PushSubscription | null> {
    const registration = await this.#scope.navigator.serviceWorker.getRegistration(this.#options.worker);
    return (await registration?.pushManager.getSubscription()) ?? null;
  }

  /** Makes browser, server and memory agree. */
  async #align(): Promise<void> {
    const { applicationServerKey: given, account = null } = this.#options;
    const key = typeof given === "string" ? given : await given();
    const registration = await this.#scope.navigator.serviceWorker.ready;
    let subscription = await registration.pushManager.getSubscription();
    const remembered = this.#remembered();
    const replaces = subscription?.endpoint ?? remembered?.endpoint ?? null;
    if (subscription !== null && !this.#isOfKey(subscription, key)) {
      await subscription.unsubscribe();
      subscription = null;
    }
    const applicationServerKey = this.#bytes(key);
    subscription ??= await registration.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey });
    const { endpoint } = subscription;
    if (remembered?.endpoint === endpoint && remembered.account === account) return;
    const old = [replaces, remembered?.endpoint].find((other) => other !== endpoint) ?? null;
    await this.#tell("POST", { subscription: subscription.toJSON(), replaces: old });
    this.#scope.localStorage.setItem(MEMORY, JSON.stringify({ endpoint, account } satisfies Registered));
  }

  #isOfKey(subscription: PushSubscription, key: string): boolean {
    const own = subscription.options.applicationServerKey;
    // Some browsers do not tell the key; then it is taken as right.
    if (own === null || own === undefined) return true;
    const [left, right] = [new Uint8Array(own), this.#bytes(key)];
    return left.length === right.length && left.every((byte, at) => byte === right[at]);
  }

  #bytes(base64url: string): Uint8Array<ArrayBuffer> {
    const text = this.#scope.atob(base64url.replace(/-/g, "+").replace(/_/g, "/"));
    return Uint8Array.from(text, (char) => char.charCodeAt(0));
  }

  async #signOff(endpoint: string): Promise<void> {
    await this.#tell("DELETE", { endpoint });
    this.#scope.localStorage.removeItem(MEMORY);
  }

  async #tell(method: string, body: object): Promise<void> {
    const headers = { "content-type": "application/json" };
    const response = await this.#scope.fetch(this.#options.register, { method, headers, body: JSON.stringify(body) });
    if (!response.ok) throw new Error(`${method} ${this.#options.register} answered ${response.status}`);
  }

  #remembered(): Registered | undefined {
    try {
      return (JSON.parse(this.#scope.localStorage.getItem(MEMORY) ?? "null") as Registered | null) ?? undefined;
    } catch {
      return undefined;
    }
  }
}
