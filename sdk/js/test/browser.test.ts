// The subscription of a page, with a fake browser.

import assert from "node:assert/strict";
import { test } from "node:test";

import { PushClient, type PushOptions } from "postrider/browser";

const KEY_1 = Buffer.alloc(65, 1).toString("base64url");
const KEY_2 = Buffer.alloc(65, 2).toString("base64url");
const IPHONE = "Mozilla/5.0 (iPhone; CPU iPhone OS 17_1 like Mac OS X) Version/17.1 Mobile Safari";
const IPAD = "Mozilla/5.0 (Macintosh; Intel Mac OS X 10_15_7) AppleWebKit/605 Version/16.4 Safari/605";

/** A browser with one service worker, and a server that remembers what it is told. */
class FakeBrowser {
  permission: NotificationPermission = "default";
  answer: NotificationPermission = "granted";
  subscription: { endpoint: string; key: Uint8Array } | null = null;
  isRegistered = false;
  made = 0;
  status = 204;
  readonly told: string[] = [];
  readonly memory = new Map<string, string>();
  readonly scope: Record<string, unknown>;

  constructor() {
    const self = this;
    const pushManager = {
      getSubscription: async () => this.#shown(),
      subscribe: async ({ applicationServerKey }: { applicationServerKey: Uint8Array }) => {
        this.subscription = { endpoint: `https://push.example/${(this.made += 1)}`, key: applicationServerKey };
        return this.#shown();
      },
    };
    const registration = { pushManager };
    this.scope = {
      isSecureContext: true,
      navigator: {
        userAgent: "Mozilla/5.0 (X11; Linux x86_64) Chrome/130",
        serviceWorker: {
          register: async () => void (this.isRegistered = true),
          ready: Promise.resolve(registration),
          getRegistration: async () => (this.isRegistered ? registration : undefined),
        },
      },
      PushManager: class {},
      Notification: {
        get permission() {
          return self.permission;
        },
        requestPermission: async () => (this.permission = this.answer),
      },
      localStorage: {
        getItem: (name: string) => this.memory.get(name) ?? null,
        setItem: (name: string, value: string) => void this.memory.set(name, value),
        removeItem: (name: string) => void this.memory.delete(name),
      },
      atob,
      fetch: async (url: string, init: RequestInit) => {
        this.told.push(`${init.method} ${url} ${String(init.body)}`);
        return new Response(null, { status: this.status });
      },
    };
  }

  client(options: Partial<PushOptions> = {}): PushClient {
    const all = { worker: "/sw.js", register: "/push", applicationServerKey: KEY_1, ...options };
    return new PushClient(all, this.scope as never);
  }

  #shown(): object | null {
    const { subscription } = this;
    if (subscription === null) return null;
    const { endpoint, key } = subscription;
    const options = { applicationServerKey: key.buffer };
    const unsubscribe = async (): Promise<boolean> => ((this.subscription = null), true);
    return { endpoint, options, unsubscribe, toJSON: () => ({ endpoint }) };
  }
}

const registered = (endpoint: number, replaces: number | null): string => {
  const url = (number: number): string => `https://push.example/${number}`;
  const old = replaces === null ? "null" : `"${url(replaces)}"`;
  return `POST /push {"subscription":{"endpoint":"${url(endpoint)}"},"replaces":${old}}`;
};
const signedOff = (endpoint: number): string => `DELETE /push {"endpoint":"https://push.example/${endpoint}"}`;

test("a visitor is asked, subscribed, left alone on later pages, and can leave", async () => {
  const browser = new FakeBrowser();
  assert.equal(await browser.client().state(), "askable");
  assert.equal(await browser.client().reconcile(), "askable", "nobody is subscribed unasked");
  assert.equal(await browser.client().subscribe(), "subscribed");
  assert.equal(await browser.client().reconcile(), "subscribed");
  assert.equal(await browser.client().state(), "subscribed");
  assert.equal(await browser.client().leave(), "askable");
  assert.equal(await browser.client().reconcile(), "askable");
  assert.deepEqual(browser.told, [registered(1, null), signedOff(1)]);
});

test("a browser without push says so, and one on iOS says that it must be installed", async () => {
  const cases: [object, object, string][] = [
    [{ isSecureContext: false }, {}, "unsupported"],
    [{ PushManager: undefined }, {}, "unsupported"],
    [{ PushManager: undefined }, { userAgent: IPHONE }, "needs-install"],
    [{ PushManager: undefined }, { userAgent: IPHONE, standalone: true }, "unsupported"],
    [{ PushManager: undefined }, { userAgent: IPHONE.replaceAll("17", "16") }, "unsupported"],
    [{ PushManager: undefined }, { userAgent: IPAD, maxTouchPoints: 5 }, "needs-install"],
    [{ PushManager: undefined }, { userAgent: IPAD, maxTouchPoints: 0 }, "unsupported"],
    [{ Notification: undefined }, {}, "unsupported"],
  ];
  for (const [scope, navigator, state] of cases) {
    const browser = new FakeBrowser();
    Object.assign(browser.scope, scope);
    Object.assign(browser.scope["navigator"] as object, navigator);
    assert.equal(await browser.client().state(), state, JSON.stringify([scope, navigator]));
    assert.equal(await browser.client().subscribe(), state);
    assert.equal(await browser.client().reconcile(), state);
    assert.deepEqual(browser.told, []);
  }
});

test("a visitor who says no is blocked, one who closes the question can be asked again", async () => {
  const browser = new FakeBrowser();
  browser.answer = "default";
  assert.equal(await browser.client().subscribe(), "askable");
  browser.answer = "denied";
  assert.equal(await browser.client().subscribe(), "blocked");
  assert.equal(await browser.client().subscribe(), "blocked");
  assert.equal(browser.made, 0);
});

test("a new key, another account, a lost or changed subscription are registered again", async () => {
  const browser = new FakeBrowser();
  await browser.client({ account: "ada" }).subscribe();
  assert.equal(await browser.client({ account: "ada", applicationServerKey: async () => KEY_2 }).reconcile(), "subscribed");
  await browser.client({ account: "bob", applicationServerKey: KEY_2 }).reconcile();
  browser.subscription = null;
  await browser.client({ account: "bob", applicationServerKey: KEY_2 }).reconcile();
  browser.subscription!.endpoint = "https://push.example/9";
  await browser.client({ account: "bob", applicationServerKey: KEY_2 }).reconcile();
  browser.memory.clear();
  await browser.client({ account: "bob", applicationServerKey: KEY_2 }).reconcile();
  const expected = [registered(1, null), registered(2, 1), registered(2, null), registered(3, 2), registered(9, 3), registered(9, null)];
  assert.deepEqual(browser.told, expected);
});

test("what the server did not take is registered with the next page", async () => {
  const browser = new FakeBrowser();
  browser.status = 503;
  await assert.rejects(browser.client().subscribe(), /POST \/push answered 503/);
  browser.status = 204;
  assert.equal(await browser.client().reconcile(), "subscribed");
  assert.deepEqual(browser.told, [registered(1, null), registered(1, null)]);
});

test("a permission that was taken back signs the subscription off", async () => {
  const browser = new FakeBrowser();
  await browser.client().subscribe();
  browser.permission = "denied";
  assert.equal(await browser.client().reconcile(), "blocked");
  assert.equal(await browser.client().reconcile(), "blocked");
  assert.deepEqual(browser.told, [registered(1, null), signedOff(1)]);
});

test("missing options are named", () => {
  assert.throws(() => new FakeBrowser().client({ worker: "" }), /worker: found , allowed: a path/);
  assert.throws(() => new PushClient({} as never), /worker: found undefined/);
});
