import { chownSync, mkdirSync, mkdtempSync, rmSync, statSync, symlinkSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { giveToOwner } from '../../src/commands/state-owner.ts';

const SERVICE = 65_534;

let folder: string;
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), 'tagferry-owner-'));
});
afterEach(() => rmSync(folder, { recursive: true }));

describe('state folder of the service, after root wrote to it', () => {
  it('belongs to the service with all files, but not what a link in it points to', () => {
    const state = join(folder, 'state');
    const shadow = join(folder, 'shadow');
    mkdirSync(join(state, 'opcua'), { recursive: true });
    writeFileSync(shadow, '');
    writeFileSync(join(state, 'opcua/own-key.pem'), '');
    symlinkSync(shadow, join(state, 'link'));
    chownSync(state, SERVICE, SERVICE);
    giveToOwner(state);
    const uidOf = (path: string) => statSync(path).uid;
    expect([uidOf(join(state, 'opcua')), uidOf(join(state, 'opcua/own-key.pem'))]).toEqual([SERVICE, SERVICE]);
    expect(uidOf(shadow)).toBe(0);
  });
});
