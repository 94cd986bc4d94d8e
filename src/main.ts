#!/usr/bin/env node
/**
 * Entry point of the `tagferry` command. Checks the Node version before any other module is loaded, because
 * better-sqlite3 13 crashes older versions.
 */
import { spawn } from 'node:child_process';
import { existsSync } from 'node:fs';
import { createRequire } from 'node:module';
import { constants } from 'node:os';
import { dirname, join } from 'node:path';
import { rememberHangup } from './base/hangup.ts';
import { useRuntimeOptions } from './base/runtime-options.ts';

const OLDEST_MAJOR = 24;

function bundledNode(): string | undefined {
  const resolve = createRequire(import.meta.url).resolve;
  try {
    const folder = dirname(resolve(`node-linux-${process.arch}/package.json`));
    const binary = join(folder, 'bin', 'node');
    return existsSync(binary) ? binary : undefined;
  } catch {
    return undefined;
  }
}

function runOn(node: string): void {
  const child = spawn(node, process.argv.slice(1), { stdio: 'inherit' });
  for (const signal of ['SIGTERM', 'SIGINT', 'SIGHUP'] as const) process.on(signal, () => child.kill(signal));
  child.on('exit', (code, signal) => {
    process.exitCode = code ?? 128 + (signal ? constants.signals[signal] : 1);
  });
}

/** Returns whether the command is `tagferry run`. `--config` may precede or follow the verb. */
function isAgent(words: readonly string[]): boolean {
  return words.find((word, at) => !word.startsWith('-') && words[at - 1] !== '--config') === 'run';
}

if (Number(process.versions.node.split('.')[0]) >= OLDEST_MAJOR) {
  if (isAgent(process.argv.slice(2))) {
    useRuntimeOptions();
    rememberHangup();
  }
  const { runCommandLine } = await import('./commands/command-line.ts');
  await runCommandLine(process.argv);
} else {
  const node = bundledNode();
  if (node) runOn(node);
  else {
    process.stderr.write(
      `tagferry requires Node ${OLDEST_MAJOR} or later, but this is ${process.version}. ` +
        `Install tagferry with its optional dependencies, which include Node ${OLDEST_MAJOR}, or put a newer Node first on PATH.\n`,
    );
    process.exitCode = 1;
  }
}
