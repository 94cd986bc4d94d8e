import { readFileSync } from 'node:fs';
import { join } from 'node:path';

/** A release in CHANGELOG.md. */
export interface Release {
  version: string;
  /** Date `2026-11-22`, or undefined for an unreleased version. */
  date: string | undefined;
  /** Text before the list. */
  words: string;
  changes: readonly string[];
}

/**
 * Returns the releases of CHANGELOG.md, newest first: `## VERSION (DATE or unreleased)`, text, then one `- ` per
 * change.
 */
export function readChangelog(root: string): Release[] {
  const sections = readFileSync(join(root, 'CHANGELOG.md'), 'utf8').split(/^## /m).slice(1);
  return sections.map((section) => {
    const head = /^(\S+) \((unreleased|\d{4}-\d\d-\d\d)\)\n/.exec(section);
    if (head === null)
      throw new Error(`CHANGELOG.md: "${section.split('\n')[0]}" is not "VERSION (DATE or unreleased)"`);
    const [words = '', ...changes] = section.slice(head[0].length).split(/^- /m);
    const flat = (text: string) => text.trim().replaceAll(/\s*\n\s*/g, ' ');
    return {
      version: head[1]!,
      date: head[2] === 'unreleased' ? undefined : head[2],
      words: flat(words),
      changes: changes.map(flat),
    };
  });
}
