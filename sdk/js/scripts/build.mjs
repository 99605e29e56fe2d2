// Compiles the package into dist/, and the worker a second time as a classic script.

import { spawnSync } from "node:child_process";
import { copyFileSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { fileURLToPath } from "node:url";

import typescript from "typescript";

const root = fileURLToPath(new URL("..", import.meta.url));
for (const folder of ["dist", "build"]) rmSync(`${root}${folder}`, { recursive: true, force: true });
const compiler = fileURLToPath(import.meta.resolve("typescript/lib/tsc.js"));
const { status } = spawnSync(process.execPath, [compiler], { cwd: root, stdio: "inherit" });
if (status !== 0) process.exit(1);

const compilerOptions = { module: typescript.ModuleKind.CommonJS, target: typescript.ScriptTarget.ES2022 };
const { outputText } = typescript.transpileModule(readFileSync(`${root}dist/worker.js`, "utf8"), { compilerOptions });
if (outputText.includes("require(")) throw new Error("src/worker.ts: found an import, allowed: none");
const classic = `// For importScripts(): self.PostriderWorker.startWorker(…)\nself.PostriderWorker = (() => {
const exports = {};\n${outputText}return exports;\n})();\n`;
writeFileSync(`${root}dist/worker-classic.js`, classic);

for (const name of ["LICENSE-APACHE", "LICENSE-MIT"]) copyFileSync(`${root}../../${name}`, `${root}${name}`);
