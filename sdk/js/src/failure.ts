// Which failures of a request are worth a repeat. Does not repeat anything.

/** Methods whose answer nobody needs: the others are left to their caller. */
const HANDED_OVER = new Set(["POST", "PUT", "PATCH", "DELETE"]);

export function isHandedOver(method: string): boolean {
  return HANDED_OVER.has(method.toUpperCase());
}

/** An answer that may be another one later. */
export function isTemporary(status: number): boolean {
  return status === 408 || status === 429 || status >= 500;
}

/** Whether the caller gave the request up. A timeout is no such wish. */
export function isWithdrawn(error: unknown): boolean {
  const { name, code } = (error ?? {}) as { name?: unknown; code?: unknown };
  return name === "AbortError" || name === "CanceledError" || code === "ERR_CANCELED";
}

/** The text of a body; `undefined` if it is binary, which a message cannot hold. */
export function textOf(body: Uint8Array): string | undefined {
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(body);
  } catch {
    return undefined;
  }
}
