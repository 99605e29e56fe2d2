// What is published: its files, its sizes, and nothing that it needs at run time.

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { gzipSync } from "node:zlib";

import typescript from "typescript";

const ROOT = fileURLToPath(new URL("../../", import.meta.url));
const BROWSER_GZIP_MAX = 4096;

interface Manifest {
  dependencies?: object;
  exports: Record<string, string | { types: string; default: string }>;
}

const manifest = JSON.parse(readFileSync(`${ROOT}package.json`, "utf8")) as Manifest;

test("the packed files are the compiled sources, their types and the README", () => {
  const text = execFileSync("npm", ["pack", "--dry-run", "--json", "--ignore-scripts"], { cwd: ROOT, encoding: "utf8" });
  const [packed] = JSON.parse(text) as [{ files: { path: string }[]; size: number }];
  const sources = readdirSync(`${ROOT}src`).map((name) => name.replace(/\.ts$/, ""));
  const compiled = sources.flatMap((name) => [`dist/${name}.d.ts`, `dist/${name}.js`]);
  const expected = ["LICENSE-APACHE", "LICENSE-MIT", "README.md", "package.json", "dist/worker-classic.js", ...compiled];
  assert.deepEqual(packed.files.map(({ path }) => path).sort(), expected.sort());
  console.log(`the package has ${packed.files.length} files and ${packed.size} bytes`);
});

test("the packed file can be installed and used", () => {
  const folder = mkdtempSync(join(tmpdir(), "postrider-pack-"));
  try {
    const pack = ["pack", "--ignore-scripts", "--pack-destination", folder];
    const file = execFileSync("npm", pack, { cwd: ROOT, encoding: "utf8", stdio: ["ignore", "pipe", "ignore"] }).trim();
    writeFileSync(join(folder, "package.json"), "{}");
    execFileSync("npm", ["install", "--offline", "--no-audit", "--no-fund", `./${file}`], { cwd: folder, stdio: "ignore" });
    const script = 'import { Postrider } from "postrider"; console.log(typeof new Postrider({ key: "k" }).send)';
    const run = ["--input-type=module", "--eval", script];
    assert.equal(execFileSync(process.execPath, run, { cwd: folder, encoding: "utf8" }), "function\n");
    assert.deepEqual(readdirSync(join(folder, "node_modules")).filter((name) => !name.startsWith(".")), ["postrider"]);
  } finally {
    rmSync(folder, { recursive: true });
  }
});

test("the entry for pages is small, with all that it imports", () => {
  for (const entry of ["browser", "worker"]) {
    const script = readFileSync(`${ROOT}dist/${entry}.js`);
    assert.ok(!/^import /m.test(script.toString()), `${entry} imports nothing`);
    const size = gzipSync(script).length;
    console.log(`postrider/${entry}: ${script.length} bytes, ${size} bytes with gzip`);
    assert.ok(size < BROWSER_GZIP_MAX, `${entry}: ${size} bytes`);
  }
});

test("nothing else is needed at run time, and every entry can be imported", async () => {
  assert.equal(manifest.dependencies, undefined);
  for (const [entry, target] of Object.entries(manifest.exports)) {
    if (typeof target === "string") continue;
    const loaded = (await import(`postrider${entry.slice(1)}`)) as object;
    assert.ok(Object.keys(loaded).length > 0, entry);
    assert.ok(readFileSync(`${ROOT}${target.types}`, "utf8").includes("export"), entry);
  }
});

test("entries for pages need nothing of Node", () => {
  const seen = new Set<string>();
  const follow = (name: string): void => {
    if (seen.has(name)) return;
    seen.add(name);
    const script = readFileSync(`${ROOT}dist/${name}.js`, "utf8");
    assert.ok(!script.includes("node:"), name);
    for (const [, next] of script.matchAll(/from "\.\/([\w-]+)\.js"/g)) follow(next!);
  };
  for (const entry of ["browser", "worker", "fetch", "axios"]) follow(entry);
});

test("no source is long, and no line of prose", () => {
  for (const folder of ["src", "test", "examples", "scripts"]) {
    for (const name of readdirSync(`${ROOT}${folder}`)) {
      const lines = readFileSync(`${ROOT}${folder}/${name}`, "utf8").split("\n");
      assert.ok(lines.length <= 500, `${name} has ${lines.length} lines`);
      const long = lines.findIndex((line) => /^\s*(\/\/|\/?\*)/.test(line) && line.length > 120);
      assert.equal(long, -1, `${name}:${long + 1} is longer than 120 characters`);
    }
  }
});

test("the code of the README compiles against the package", () => {
  const blocks = readFileSync(`${ROOT}README.md`, "utf8").matchAll(/^```js\n(.*?)^```$/gms);
  mkdirSync(`${ROOT}build/readme`, { recursive: true });
  const files = Array.from(blocks, ([, code], number) => {
    const path = `${ROOT}build/readme/${number}.mts`;
    // Plain JavaScript infers less than TypeScript: literals of messages are texts there.
    writeFileSync(path, code!.replace("async function* messages()", "async function* messages(): AsyncGenerator<import('postrider').Message>"));
    return path;
  });
  assert.ok(files.length >= 8, `${files.length} blocks`);
  const { config } = typescript.readConfigFile(`${ROOT}tsconfig.json`, (path) => readFileSync(path, "utf8")) as { config: { compilerOptions: object } };
  const { options } = typescript.convertCompilerOptionsFromJson({ ...config.compilerOptions, noEmit: true, rootDir: "." }, ROOT);
  const found = typescript.getPreEmitDiagnostics(typescript.createProgram(files, options));
  const texts = found.map(({ file, messageText }) => `${file?.fileName}: ${typescript.flattenDiagnosticMessageText(messageText, "\n")}`);
  assert.deepEqual(texts, []);
});

test("the lock file names no host", () => {
  assert.ok(!/"resolved": "(?!https:\/\/registry\.npmjs\.org\/)/.test(readFileSync(`${ROOT}package-lock.json`, "utf8")));
});
