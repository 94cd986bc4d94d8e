/**
 * Masks configuration files for use outside the gateway: the support archive and `backup --without-secrets`. Only
 * listed members are shown. All other values, comments and unknown names are masked. Line numbers are preserved,
 * because problem messages contain them.
 */
import { isAlias, isMap, isScalar, isSeq, type Node, parseDocument } from 'yaml';
import { SHIPPED_CONFIGURATION } from '../base/installation.ts';
import { REDACTED } from '../base/redactor.ts';
import { readRegularFileSync } from '../base/regular-file.ts';
import { envText, parseEnvFile } from './env-file.ts';
import { Problems } from './problem.ts';
import { AGENT_ENV_KEYS } from './setting-keys.ts';
import { maskedAddress, REACTIONS, type Shown, shownSetting, TAGS } from './shown-members.ts';

/** Masked text and the masked values, so that copies of these values can be found in other files. */
export interface MaskedText {
  text: string;
  masked: string[];
}

export const maskedTags = (text: string): MaskedText => maskedYaml(text, TAGS);
export const maskedReactions = (text: string): MaskedText => maskedYaml(text, REACTIONS);

function maskedYaml(text: string, rule: Shown): MaskedText {
  const document = parseDocument(text, { keepSourceTokens: false });
  const masked: string[] = [];
  // If the text cannot be parsed, none of it is shown.
  if (document.errors.length > 0) return { text: '# not valid YAML\n', masked };
  let written = '';
  let end = 0;
  walk(document.contents, rule);
  return { text: written + structure(text.slice(end)), masked };

  function walk(node: unknown, shown: Shown | undefined): void {
    const parts = typeof shown === 'object' ? shown : {};
    if (isMap(node)) {
      for (const { key, value } of node.items) {
        const name = isScalar(key) ? String(key.value) : '';
        const member = parts.members && Object.hasOwn(parts.members, name) ? parts.members[name] : parts.each;
        walk(key, member && 'all');
        walk(value, member);
      }
    } else if (isSeq(node)) {
      for (const one of node.items) walk(one, shown === 'all' ? shown : parts.items);
    } else if (isScalar(node)) put(node, parts.isScalarShown ? 'all' : shown);
    else if (isAlias(node)) put(node, undefined);
  }

  function put(node: Node, shown: Shown | undefined): void {
    const [from, to] = node.range!;
    written += structure(text.slice(end, from));
    end = to;
    const source = text.slice(from, to);
    // The value is empty.
    if (source === '') return;
    const value = isScalar(node) ? String(node.value) : '';
    const address = shown === 'address' ? maskedAddress(value) : value;
    if (shown === 'all' || (shown === 'address' && address === value)) {
      written += source;
      return;
    }
    masked.push(...partsOf(value));
    // Preserve the line count of a multi-line value.
    const lines = '\n'.repeat(source.split('\n').length - 1);
    written += JSON.stringify(shown === 'address' ? address : REDACTED) + lines;
  }
}

/** Returns the YAML syntax between scalars, without comments, anchors and tags. */
function structure(between: string): string {
  return between.replaceAll(/#[^\n]*/g, '').replaceAll(/[^\s:?,{}[\]-]+/g, '');
}

/** Returns the value and, for an address, also its credentials and its path with query. */
function partsOf(value: string): string[] {
  const parts = /:\/\/(.*@)?[^/?#]*(.*)$/s.exec(value);
  return [value, ...(parts?.[1]?.slice(0, -1).split(':') ?? []), ...(parts?.[2]?.split(/[/?&=#]/) ?? [])];
}

/** Masks agent.env, except for non-secret settings and lines from the shipped file. */
export function maskedEnv(text: string): MaskedText {
  const shipped = shippedLines();
  const masked: string[] = [];
  const known = parseEnvFile(text, '', AGENT_ENV_KEYS, new Problems()).lines;
  const byLine = new Map([...known].map(([key, line]) => [line.place.line, { key, ...line }]));
  const lines = text.split(/\r\n|\n|\r/).map((row, index) => {
    const line = byLine.get(index + 1);
    if (line === undefined) {
      if (row.trim() === '' || shipped.has(row)) return row;
      // The line is a comment, a misspelled key or part of a secret.
      masked.push(row.replace(/^[^=]*=/, '').trim());
      return `#${REDACTED}`;
    }
    const { key, value } = line;
    // Omit any comment after the value.
    const shown = shownSetting(key, value);
    if (value === '' || shown === value) return `${key}=${envText(value)}`;
    masked.push(...partsOf(value));
    // Comment out the line, so that the setting is reported as missing after a restore.
    return `#${key}=${shown} (masked)`;
  });
  return { text: lines.join('\n'), masked };
}

function shippedLines(): ReadonlySet<string> {
  try {
    return new Set(
      readRegularFileSync(new URL('agent.env', SHIPPED_CONFIGURATION).pathname).bytes.toString().split('\n'),
    );
  } catch {
    return new Set();
  }
}
