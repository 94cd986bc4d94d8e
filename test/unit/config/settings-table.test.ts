/** Rules for every entry in src/config/settings. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { reloadedSettings } from '../../../src/config/reloaded-settings.ts';
import { readForm } from '../../../src/config/setting-forms.ts';
import { KEY_NAMES, SETTING_CHAPTERS, settingKey } from '../../../src/config/setting-keys.ts';
import type { Settings } from '../../../src/config/settings.ts';
import { check } from './folder.ts';

const SRC = join(import.meta.dirname, '../../../src');
const entries = KEY_NAMES.map((key) => ({ key, ...settingKey(key) }));

/** Sources that read settings: all except those that define them. */
const readers = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts') && !/^config\/settings?\b/.test(file))
  .map((file) => readFileSync(join(SRC, file), 'utf8'))
  .join('\n');

describe('settings table', () => {
  it('contains each key in exactly one chapter, with a unique member', () => {
    const inChapters = SETTING_CHAPTERS.flatMap((chapter) => Object.keys(chapter.entries));
    expect(inChapters.sort()).toEqual([...KEY_NAMES].sort());
    expect(new Set(entries.map(({ member }) => member)).size).toBe(entries.length);
  });

  it.each(entries)('contains $key, which is used in the source code', ({ member }) => {
    const ofEachListener = member.replace(/^(ingest|ops|webhook)(?=Tls)/, '');
    // As a property, destructured, or combined with a listener name.
    const ways = [
      `\\.${member}\\b`,
      `[{,]\\s*${member}\\s*[,}:](?!\\s*(?:string|number|boolean)\\b)`,
      `\\}${ofEachListener}\``,
    ];
    const reads = new RegExp(ways.join('|'));
    expect(reads.test(readers)).toBe(true);
  });

  it.each(entries.filter((entry) => entry.default !== undefined))('contains a valid default of $key', (entry) => {
    expect(readForm(entry.form, entry.default!)).toHaveProperty('value');
  });

  it.each(entries)('describes $key in sentences that fit in a file and a table', ({ text, more }) => {
    expect(text).toMatch(/^[\x20-\x7b\x7d\x7e]+[.)]$/);
    expect(more ?? '').toMatch(/^[\x20-\x7b\x7d\x7e]*$/);
  });

  it.each(entries)('states whether $key is applied by a reload or requires a restart', ({ key, member, appliedBy }) => {
    const inForce = { [member]: 'before' } as unknown as Settings;
    const { settings, needRestart } = reloadedSettings(inForce, { [member]: 'after' } as unknown as Settings);
    expect(settings[member]).toBe(appliedBy === 'reload' ? 'after' : 'before');
    expect(needRestart).toEqual(appliedBy === 'reload' ? [] : [key]);
  });
});

describe('relative file name in agent.env', () => {
  const files = entries.filter(({ key, form }) => form.as === 'path' && key !== 'STATE_DIR');

  it.each(files)('is resolved against the configuration folder for $key', ({ key }) => {
    const { errors } = check({ 'agent.env': `${key}=own.pem\n` });
    expect(errors.join('\n')).toContain(`${key}: file DIR/own.pem`);
  });
});
