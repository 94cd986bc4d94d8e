import { chmodSync, mkdirSync, mkdtempSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { onTestFinished } from 'vitest';
import { type CheckedConfiguration, checkConfiguration } from '../../../src/config/configuration.ts';
import { problemLine } from '../../../src/config/problem.ts';
import { ACTION_KINDS } from '../../../src/reactions/actions.ts';
import { SOURCE_KINDS } from '../../../src/sources/kinds.ts';

/** Required settings, so that a test contains only the settings that it checks. */
export const ENOUGH = {
  PLATFORM_URL: 'https://api.example.com',
  CLIENT_ID: 'key',
  CLIENT_SECRET: 'secret-of-the-key',
  TECHNICAL_USERNAME: 'machine',
  TECHNICAL_PASSWORD: 'secret-of-the-machine',
};

export type Files = Readonly<Record<string, string | Uint8Array>>;

/** Creates a configuration folder that only its owner can read, and deletes it after the test. */
export function makeFolder(files: Files, mode = 0o600): string {
  const folder = mkdtempSync(join(tmpdir(), 'tagferry-config-'));
  onTestFinished(() => rmSync(folder, { recursive: true, force: true }));
  for (const [name, content] of Object.entries(files)) {
    mkdirSync(dirname(join(folder, name)), { recursive: true });
    writeFileSync(join(folder, name), content);
    chmodSync(join(folder, name), mode);
  }
  return folder;
}

export interface Checked extends CheckedConfiguration {
  /** Lines of `check`, with `DIR` for the folder and without columns, which `misplaced` checks. */
  lines: string[];
  errors: string[];
  folder: string;
}

const ONE_TAG = 'tags: { T: { asset: 1, values: { v: {} } } }\n';

/** Returns problems whose line and column do not point to their text, which may be in quotes. */
export function misplaced(files: Files, checked: Pick<Checked, 'problems' | 'folder'>): string[] {
  const wrong: string[] = [];
  for (const problem of checked.problems) {
    const { file, line, column, text } = problem;
    const content = files[file.slice(checked.folder.length + 1)];
    if (typeof content !== 'string' || line === null || column === null || text === '') continue;
    const there = content.split('\n')[line - 1]?.slice(column - 1) ?? '';
    // Passwords are masked, and long texts are truncated.
    const start = text.replace(/(\*\*\*@|…|\?).*$/, '');
    if (!there.replace(/^["']/, '').startsWith(start))
      wrong.push(`${problemLine(problem)} [${text}] leads to: ${there}`);
  }
  return wrong;
}

/** Checks these files with the required settings. */
export function check(files: Files, environment: Readonly<Record<string, string>> = ENOUGH): Checked {
  const folder = makeFolder({ 'tags.yaml': ONE_TAG, ...files });
  const checked = checkConfiguration({ directory: folder, environment, kinds: SOURCE_KINDS, actions: ACTION_KINDS });
  const line = (problem: (typeof checked.problems)[number]) =>
    problemLine(problem)
      .replaceAll(folder, 'DIR')
      .replace(/^([^:]*:\d+):\d+:/, '$1:');
  return {
    ...checked,
    lines: checked.problems.map(line),
    errors: checked.problems.filter((problem) => problem.severity === 'error').map(line),
    folder,
  };
}
