/** What holds for every entry of src/config/settings, those of tomorrow included. */
import { readdirSync, readFileSync } from 'node:fs';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { reloadedSettings } from '../../src/config/reloaded-settings.ts';
import { readForm } from '../../src/config/setting-forms.ts';
import { KEY_NAMES, SETTING_CHAPTERS, settingKey } from '../../src/config/setting-keys.ts';
import type { Settings } from '../../src/config/settings.ts';
import { check } from './folder.ts';

const SRC = join(import.meta.dirname, '../../src');
const entries = KEY_NAMES.map((key) => ({ key, ...settingKey(key) }));

/** What reads settings: everything but where they are made. */
const readers = readdirSync(SRC, { recursive: true, encoding: 'utf8' })
  .filter((file) => file.endsWith('.ts') && !/^config\/settings?\b/.test(file))
  .map((file) => readFileSync(join(SRC, file), 'utf8'))
  .join('\n');

describe('each setting', () => {
  it('stands in one chapter, under a member of its own', () => {
    const inChapters = SETTING_CHAPTERS.flatMap((chapter) => Object.keys(chapter.entries));
    expect(inChapters.sort()).toEqual([...KEY_NAMES].sort());
    expect(new Set(entries.map(({ member }) => member)).size).toBe(entries.length);
  });

  it.each(entries)('$key is read somewhere', ({ member }) => {
    const ofEachListener = member.replace(/^(ingest|ops|webhook)(?=Tls)/, '');
    // As a property, taken out of its object, or put together with the name of a listener.
    const ways = [
      `\\.${member}\\b`,
      `[{,]\\s*${member}\\s*[,}:](?!\\s*(?:string|number|boolean)\\b)`,
      `\\}${ofEachListener}\``,
    ];
    const reads = new RegExp(ways.join('|'));
    expect(reads.test(readers)).toBe(true);
  });

  it.each(entries.filter((entry) => entry.default !== undefined))('$key has a default that it would take', (entry) => {
    expect(readForm(entry.form, entry.default!)).toHaveProperty('value');
  });

  it.each(entries)('$key is said in sentences that fit a file and a table', ({ text, more }) => {
    expect(text).toMatch(/^[\x20-\x7b\x7d\x7e]+[.)]$/);
    expect(more ?? '').toMatch(/^[\x20-\x7b\x7d\x7e]*$/);
  });

  it.each(entries)(
    '$key is in force after a reload, or is named as what waits for a restart',
    ({ key, member, takenBy }) => {
      const inForce = { [member]: 'before' } as unknown as Settings;
      const { settings, needRestart } = reloadedSettings(inForce, { [member]: 'after' } as unknown as Settings);
      expect(settings[member]).toBe(takenBy === 'reload' ? 'after' : 'before');
      expect(needRestart).toEqual(takenBy === 'reload' ? [] : [key]);
    },
  );
});

describe('a file that agent.env names', () => {
  const files = entries.filter(({ form }) => form.as === 'path');

  it.each(files)('as $key is looked for beside it', ({ key }) => {
    const { errors } = check({ 'agent.env': `${key}=own.pem\n` });
    expect(errors.join('\n')).toContain(`${key}: there is no file DIR/own.pem`);
  });
});
