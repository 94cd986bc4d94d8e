/** Handling of gateway values by the package scripts, in a separate root folder (`DPKG_ROOT`). */
import { execFile } from 'node:child_process';
import { chmodSync, existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { dirname, join } from 'node:path';
import { afterEach, beforeAll, beforeEach, describe, expect, it } from 'vitest';

const SCRIPTS = join(import.meta.dirname, '../../scripts/deb');

let root: string;

// A script that ignores DPKG_ROOT would delete folders of this machine, so it is inspected before it runs.
beforeAll(() => {
  for (const name of ['prerm', 'postrm']) {
    const lines = readFileSync(join(SCRIPTS, name), 'utf8').split('\n');
    const astray = lines.filter((line) => /^\s*(rm|rmdir)\b.*\s"?\/(?!dev\/null)/.test(line));
    if (astray.length > 0) throw new Error(`${name} deletes outside DPKG_ROOT: ${astray.join('; ')}`);
  }
});
beforeEach(() => {
  root = mkdtempSync(join(tmpdir(), 'tagferry-purge-'));
  for (const tool of ['deb-systemd-helper', 'deb-systemd-invoke', 'systemctl']) program(`tools/${tool}`, 'exit 0');
  file('var/lib/tagferry/buffer.db');
  file('etc/tagferry/agent.env');
});
afterEach(() => rmSync(root, { recursive: true, force: true }));

function file(path: string, text = ''): void {
  mkdirSync(dirname(join(root, path)), { recursive: true });
  writeFileSync(join(root, path), text);
}

function program(path: string, lines: string): void {
  file(path, `#!/bin/sh\n${lines}\n`);
  chmodSync(join(root, path), 0o755);
}

const exists = (path: string) => existsSync(join(root, path));

/** `tagferry buffer ls --json` of the package, before its removal. */
const bufferSays = (listing: string, status = 0) =>
  program('usr/bin/tagferry', `[ "$*" = "buffer ls --json" ] || exit 2\nprintf '%s\\n' '${listing}'\nexit ${status}`);

function script(name: string, ...args: string[]): Promise<{ status: number; stderr: string }> {
  const environment = { PATH: `${join(root, 'tools')}:${process.env.PATH}`, DPKG_ROOT: root };
  return new Promise((resolve) => {
    execFile('/bin/sh', [join(SCRIPTS, name), ...args], { env: environment }, (error, _stdout, stderr) => {
      resolve({ status: error === null ? 0 : Number(error.code), stderr });
    });
  });
}

/** Returns the output while the program is still installed. */
async function removed(): Promise<string> {
  const { status, stderr } = await script('prerm', 'remove');
  expect(status).toBe(0);
  rmSync(join(root, 'usr'), { recursive: true, force: true });
  expect(await script('postrm', 'remove')).toMatchObject({ status: 0 });
  expect(exists('var/lib/tagferry/buffer.db')).toBe(true);
  return stderr;
}

const purged = async () => {
  const outcome = await script('postrm', 'purge');
  expect(outcome.status).toBe(0);
  expect(exists('etc/tagferry')).toBe(false);
  return outcome.stderr;
};

describe('package purge', () => {
  it('keeps the state folder if the buffer contains values, reports this, and succeeds', async () => {
    bufferSays('[{"asset":881,"values":3}]');
    // A purge deletes the configuration folder, so its instructions come before that.
    expect(await removed()).toMatch(/undelivered values.*sudo touch \/etc\/tagferry\/purge-values/s);
    const hint = await purged();
    expect(hint).toMatch(/var\/lib\/tagferry was kept, because/);
    expect(hint).not.toContain('purge-values');
    expect(exists('var/lib/tagferry/buffer.db')).toBe(true);
  });

  it('deletes a state folder with an empty buffer', async () => {
    bufferSays('[]');
    expect(await removed()).toBe('');
    expect(await purged()).toBe('');
    expect(exists('var/lib/tagferry')).toBe(false);
  });

  it('keeps the state folder if the buffer state is unknown', async () => {
    bufferSays('[]');
    await removed();
    // Reinstalled, then removed while the buffer could not be read.
    bufferSays('', 1);
    await removed();
    expect(await purged()).toContain('was kept');
    expect(exists('var/lib/tagferry/buffer.db')).toBe(true);
  });

  it('deletes values if /etc/tagferry/purge-values exists, and a folder that never had a buffer', async () => {
    bufferSays('[{"asset":881,"values":3}]');
    file('etc/tagferry/purge-values');
    expect(await removed()).toBe('');
    expect(await purged()).toBe('');
    expect(exists('var/lib/tagferry')).toBe(false);
    file('var/lib/tagferry/session.json');
    file('etc/tagferry/agent.env');
    expect(await purged()).toBe('');
    expect(exists('var/lib/tagferry')).toBe(false);
  });
});
