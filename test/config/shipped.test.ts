import { spawnSync } from 'node:child_process';
import { mkdtempSync, readdirSync, readFileSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { describe, expect, it } from 'vitest';
import { AGENT_ENV_KEYS, KEY_NAMES, settingKey } from '../../src/config/setting-keys.ts';
import { check, ENOUGH } from './folder.ts';

const ROOT = join(import.meta.dirname, '../..');
const shipped = (name: string) => readFileSync(join(ROOT, 'config', name), 'utf8');
const YAML = { 'tags.yaml': shipped('tags.yaml'), 'reactions.yaml': shipped('reactions.yaml') };

describe('the shipped configuration folder', () => {
  it('lacks the five required keys and nothing else', () => {
    const { lines } = check({ ...YAML, 'agent.env': shipped('agent.env') }, {});
    expect(lines.map((line) => / (\w+) is missing/.exec(line)?.[1])).toEqual(Object.keys(ENOUGH));
    expect(check({ ...YAML, 'agent.env': shipped('agent.env') }).lines).toEqual([]);
  });

  it('has a configuration for the sandbox that check accepts', () => {
    const names = ['agent.env', 'tags.yaml', 'reactions.yaml'];
    const { lines } = check(Object.fromEntries(names.map((name) => [name, shipped(`examples/sandbox/${name}`)])), {});
    expect(lines.filter((line) => !line.includes('warning'))).toEqual([]);
  });

  it('names every key once, and with the default that is true', () => {
    const rows = [...shipped('agent.env').matchAll(/^#?([A-Z][A-Z0-9_]*)=(.*)$/gm)];
    expect(rows.map((row) => row[1]).sort()).toEqual([...KEY_NAMES].sort());
    for (const [, key, value] of rows) {
      const fallback = settingKey(key as (typeof KEY_NAMES)[number]).default;
      expect(`${key}=${value}`).toBe(`${key}=${fallback ?? ''}`);
    }
    expect(AGENT_ENV_KEYS).toHaveLength(2 * KEY_NAMES.length);
  });

  it('has an agent.env, and a page, that are what the entries say; `node scripts/write-settings.ts` writes them', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tagferry-settings-'));
    try {
      const run = spawnSync(process.execPath, [join(ROOT, 'scripts/write-settings.ts'), folder], { encoding: 'utf8' });
      expect(run.status, run.stderr).toBe(0);
      expect(shipped('agent.env')).toBe(readFileSync(join(folder, 'agent.env'), 'utf8'));
      expect(shipped('../docs/settings.md')).toBe(readFileSync(join(folder, 'settings.md'), 'utf8'));
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('has examples that are right once they are uncommented', () => {
    const tags = shipped('tags.yaml')
      .replace('sources: {}', 'sources:')
      .replaceAll(/^# ( \S| {3})/gm, ' $1')
      .replaceAll(/^#( {2}| {4})(?=\S)/gm, ' $1')
      .replaceAll(/^ {6}# (level|temperature):/gm, '      $1:')
      .replaceAll(/^ {3}(?=\S)/gm, '  ')
      .replaceAll(/^ {5}(?=\S)/gm, '    ');
    const [head, examples] = shipped('reactions.yaml').split('reactions: []');
    const reactions = `${head}reactions:${examples!.replaceAll(/^# {2}/gm, '  ')}`;
    const { lines, configuration } = check({ 'tags.yaml': tags, 'reactions.yaml': reactions });
    expect(lines.map((line) => line.replace(/^[^ ]+ /, ''))).toEqual([
      'warning: there is no program /opt/site/close-valve, install it, or write the path of one',
    ]);
    expect(configuration?.tags.sources.size).toBe(4);
    expect(configuration?.tags.tags.size).toBe(3);
    expect(configuration?.reactions).toHaveLength(4);
  });

  it('has the schemas that check goes by; `node scripts/write-schemas.ts` writes them', () => {
    const folder = mkdtempSync(join(tmpdir(), 'tagferry-schemas-'));
    try {
      const run = spawnSync(process.execPath, [join(ROOT, 'scripts/write-schemas.ts'), folder], { encoding: 'utf8' });
      expect(run.status, run.stderr).toBe(0);
      const names = readdirSync(folder).sort();
      expect(names).toEqual(['reactions.schema.json', 'tags.schema.json']);
      for (const name of names) expect(shipped(`schema/${name}`), name).toBe(readFileSync(join(folder, name), 'utf8'));
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  it('names its schemas for editors', () => {
    for (const name of ['tags', 'reactions']) {
      const schema = /^# yaml-language-server: \$schema=(\S+)/.exec(shipped(`${name}.yaml`))?.[1];
      expect(readdirSync(join(ROOT, 'config/schema'))).toContain(schema?.replace('schema/', ''));
    }
  });
});
