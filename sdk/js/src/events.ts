// Reads the server's stream of events (`text/event-stream`).

import type { Transport } from "./transport.js";
import type { ServerEvent } from "./types.js";

export async function* events(
  transport: Transport,
  signal: AbortSignal | undefined,
): AsyncGenerator<ServerEvent, void, undefined> {
  const stop = new AbortController();
  const abort = (): void => stop.abort(signal?.reason);
  signal?.throwIfAborted();
  signal?.addEventListener("abort", abort, { once: true });
  try {
    const response = await transport.stream({ method: "GET", path: "/v1/events", signal: stop.signal });
    if (response.body === null) return;
    for await (const block of blocks(response.body)) {
      const event = eventOf(block);
      if (event !== undefined) yield event;
    }
  } finally {
    signal?.removeEventListener("abort", abort);
    stop.abort();
  }
}

/** The parts of the stream between empty lines. */
async function* blocks(body: ReadableStream<Uint8Array>): AsyncGenerator<string, void, undefined> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const bytes of body as unknown as AsyncIterable<Uint8Array>) {
    text += decoder.decode(bytes, { stream: true });
    const whole = text.split("\n\n");
    text = whole.pop() ?? "";
    yield* whole;
  }
}

/** Lines that begin with a colon only keep the connection open. */
function eventOf(block: string): ServerEvent | undefined {
  const fields = block.split("\n").map((line) => /^(event|data): ?(.*)$/.exec(line));
  const data = fields.filter((field) => field?.[1] === "data").map((field) => field?.[2]).join("\n");
  if (data === "") return undefined;
  const kind = fields.find((field) => field?.[1] === "event")?.[2];
  const value = JSON.parse(data) as unknown;
  const body = typeof value === "object" && value !== null ? value : { count: value };
  return { ...(kind === undefined ? {} : { kind }), ...body } as ServerEvent;
}
