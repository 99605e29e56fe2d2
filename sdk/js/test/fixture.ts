// The real server with its fake providers, and receivers of our own.

import { type ChildProcess, spawn } from "node:child_process";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { createServer, type IncomingHttpHeaders, type Server } from "node:http";
import type { AddressInfo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createInterface } from "node:readline";
import { after, before } from "node:test";

import { type Delivery, Postrider } from "postrider";

export function binary(): string {
  const path = process.env["POSTRIDER_BIN"];
  if (path === undefined) throw new Error("POSTRIDER_BIN: found nothing, allowed: the path of a built postrider");
  return path;
}

interface Accepted {
  method: string;
  body: string;
  headers: Record<string, string>;
}

/** Stops a process that a test started. */
export async function stop(child: ChildProcess): Promise<void> {
  if (child.exitCode !== null || child.signalCode !== null) return;
  child.kill("SIGTERM");
  await once(child, "exit");
}

/** `postrider dev`: one per test file. */
export class DevServer {
  server = "";
  key = "";
  /** Where the fake receivers of plain HTTP are. */
  sandbox = "";
  client!: Postrider;

  constructor() {
    let child: ChildProcess;
    before(async () => {
      const args = ["dev", "--json", "--listen", "127.0.0.1:0", "--listen-inbox", "127.0.0.1:0"];
      child = spawn(binary(), args, { stdio: ["ignore", "pipe", "inherit"] });
      if (child.stdout === null) throw new Error("no output");
      const [line] = (await once(createInterface(child.stdout), "line")) as [string];
      const printed = JSON.parse(line) as { server: string; key: string; http: string };
      [this.server, this.key, this.sandbox] = [printed.server, printed.key, printed.http];
      this.client = new Postrider({ server: this.server, key: this.key });
    });
    after(async () => await stop(child));
  }

  /** The receiver of a name answers its next requests so; then 200. */
  async script(name: string, answers: string[]): Promise<string> {
    const body = JSON.stringify({ script: [...answers, "ok"] });
    const init = { method: "PUT", headers: { "content-type": "application/json" }, body };
    const response = await fetch(`${this.sandbox}/sandbox/http/${name}`, init);
    if (!response.ok) throw new Error(`${response.status} ${await response.text()}`);
    return `${this.sandbox}/http/${name}`;
  }

  /** The last request that a receiver accepted. */
  async last(name: string): Promise<Accepted> {
    return await eventually(async () => {
      const response = await fetch(`${this.sandbox}/sandbox/last/http/${name}`);
      return response.ok ? ((await response.json()) as Accepted) : undefined;
    });
  }

  /** The delivery, as soon as it is in a state. */
  async inState(id: string, state: Delivery["state"]): Promise<Delivery> {
    return await eventually(async () => {
      const delivery = await this.client.deliveries.get(id);
      return delivery.state === state ? delivery : undefined;
    });
  }
}

/** `postrider serve` with settings of its own, which reaches this machine. Ends with the test or the test file. */
export async function startServer(settings: { env?: Record<string, string>; config?: string }): Promise<Postrider> {
  const folder = mkdtempSync(join(tmpdir(), "postrider-sdk-"));
  const network = "[network]\nallow_private_targets = true\nallow_plain_http = true\n";
  writeFileSync(join(folder, "postrider.toml"), `${network}${settings.config ?? ""}`);
  const key = randomBytes(32).toString("hex");
  const env = { ...process.env, ...settings.env, POSTRIDER_ADMIN_KEY: key };
  const args = ["serve", "--data", join(folder, "data"), "--listen", "127.0.0.1:0"];
  const child = spawn(binary(), args, { cwd: folder, env, stdio: ["ignore", "pipe", "pipe"] });
  after(async () => {
    await stop(child);
    rmSync(folder, { recursive: true });
  });
  let said = "";
  for (const stream of [child.stdout, child.stderr]) stream.on("data", (text) => (said += String(text)));
  const server = await eventually(async () => {
    if (child.exitCode !== null) throw new Error(said);
    return /http:\/\/127\.0\.0\.1:[1-9]\d*/.exec(said)?.[0];
  });
  return new Postrider({ server, key });
}

/** Asks until there is an answer. */
export async function eventually<T>(ask: () => Promise<T | undefined>): Promise<T> {
  for (const end = Date.now() + 20_000; Date.now() < end; ) {
    const answer = await ask();
    if (answer !== undefined) return answer;
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error("nothing happened within 20 s");
}

export interface Received {
  method: string;
  path: string;
  headers: IncomingHttpHeaders;
  body: Buffer;
}

/** What a test's own server answers: `undefined` for no answer at all. */
export interface Reply {
  status: number;
  headers?: Record<string, string>;
  body?: string;
}

/** A server of the test itself. It ends with the test file. */
export async function serve(
  answer: (request: Received, number: number) => Reply | undefined,
): Promise<{ url: string; received: Received[] }> {
  const received: Received[] = [];
  const server: Server = createServer(async (request, response) => {
    const chunks: Buffer[] = [];
    for await (const chunk of request) chunks.push(chunk as Buffer);
    const { method = "", url: path = "", headers } = request;
    const one = { method, path, headers, body: Buffer.concat(chunks) };
    received.push(one);
    const reply = answer(one, received.length - 1);
    if (reply === undefined) request.socket.destroy();
    else response.writeHead(reply.status, reply.headers).end(reply.body);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  after(() => {
    server.close();
    server.closeAllConnections();
  });
  return { url: `http://127.0.0.1:${(server.address() as AddressInfo).port}`, received };
}

/** An address where nobody listens. */
export async function closedPort(): Promise<string> {
  const server = createServer();
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  const { port } = server.address() as AddressInfo;
  server.close();
  await once(server, "close");
  return `http://127.0.0.1:${port}`;
}
