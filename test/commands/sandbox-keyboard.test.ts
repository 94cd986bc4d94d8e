import { spawn } from 'node:child_process';
import { once } from 'node:events';
import { join } from 'node:path';
import { afterEach, describe, expect, it, vi } from 'vitest';
import { EVENT_TYPES } from '../../src/contract/events.ts';
import { isInForeground, Keyboard, type KeyInput } from '../../src/sandbox/program/keyboard.ts';
import { helpText, keysOf } from '../../src/sandbox/program/keys.ts';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { MAIN } from '../built-agent.ts';
import { Receiver } from '../sandbox/receiver.ts';
import { Visitor } from '../sandbox/visitor.ts';

/** A terminal's input that remembers in which mode it is. */
class Terminal implements KeyInput {
  isTTY = true;
  isRaw = false;
  isRead = false;
  #listener: ((chunk: Buffer) => void) | undefined;

  setRawMode(raw: boolean): void {
    this.isRaw = raw;
  }
  on(_event: 'data', listener: (chunk: Buffer) => void): void {
    this.#listener = listener;
  }
  off(): void {
    this.#listener = undefined;
  }
  resume(): void {
    this.isRead = true;
  }
  pause(): void {
    this.isRead = false;
  }
  type(text: string): void {
    this.#listener?.(Buffer.from(text));
  }
}

function keyboard() {
  const terminal = new Terminal();
  const parts = { press: vi.fn<(key: string) => void>(), quit: vi.fn(), suspend: vi.fn(), say: vi.fn() };
  return { terminal, parts, keyboard: new Keyboard({ input: terminal, ...parts }) };
}

describe('the keyboard', () => {
  it('reads one key at a time in raw mode, and nothing of an arrow key', () => {
    const { terminal, parts, keyboard: board } = keyboard();
    board.start();
    expect([terminal.isRaw, terminal.isRead]).toEqual([true, true]);
    terminal.type('av');
    terminal.type('\u001b[A');
    terminal.type('?');
    expect(parts.press.mock.calls.flat()).toEqual(['a', 'v', '?']);
    board.stop();
  });

  it('stops on Ctrl-C and gives the terminal back before it does', () => {
    const { terminal, parts, keyboard: board } = keyboard();
    board.start();
    parts.quit.mockImplementation(() => expect([terminal.isRaw, terminal.isRead]).toEqual([false, false]));
    terminal.type('\u0003a');
    expect(parts.quit).toHaveBeenCalledOnce();
    expect(parts.press).not.toHaveBeenCalled();
  });

  it('gives the terminal back on Ctrl-Z and takes it again', () => {
    const { terminal, parts, keyboard: board } = keyboard();
    board.start();
    terminal.type('\u001a');
    expect([parts.suspend.mock.calls.length, terminal.isRaw]).toEqual([1, false]);
    board.start();
    expect(terminal.isRaw).toBe(true);
    board.stop();
  });

  it('gives the terminal back when the process exits by any way', () => {
    const { terminal, keyboard: board } = keyboard();
    const before = process.listeners('exit');
    board.start();
    const own = process.listeners('exit').find((listener) => !before.includes(listener));
    own!(0);
    expect(terminal.isRaw).toBe(false);
    expect(process.listeners('exit')).toEqual(before);
  });

  it('says why a happening could not be, and goes on', async () => {
    const { terminal, parts, keyboard: board } = keyboard();
    parts.press.mockImplementation(() => {
      throw new Error('there is no node');
    });
    board.start();
    terminal.type('n');
    await vi.waitFor(() => expect(parts.say).toHaveBeenCalledWith('there is no node'));
    expect(board.isOn).toBe(true);
    board.stop();
  });

  it('is off in the background: the process group of the terminal is another', () => {
    expect(isInForeground('123 (no de) S 1 123 123 34816 123 4194304')).toBe(true);
    expect(isInForeground('123 (a) b) S 1 123 100 34816 100 4194304')).toBe(false);
    expect(isInForeground('')).toBe(true);
  });
});

describe('the keys', () => {
  let sandbox: Sandbox;
  const receiver = new Receiver();
  afterEach(async () => {
    await sandbox.stop();
    await receiver.stop();
  });

  it('are one a happening, and bring about all 23 event types, each by being pressed twice at most', async () => {
    sandbox = new Sandbox();
    await sandbox.start();
    await receiver.start();
    const visitor = await Visitor.signedIn(sandbox);
    await visitor.call('POST', '/v1/client_applications/3/webhooks', { url: receiver.url, event_types: EVENT_TYPES });
    const keys = keysOf();
    expect(new Set(keys.map(({ key }) => key)).size).toBe(keys.length);
    expect(keys.every(({ key }) => key.length === 1)).toBe(true);
    for (const key of keys.filter(({ causes }) => causes.length > 0)) {
      const before = key.causes.map((type) => sandbox.deliveriesOf(type));
      for (let i = 0; i < 2; i++) expect(await key.press(sandbox)).toEqual(expect.any(String));
      for (const [index, type] of key.causes.entries()) {
        expect(sandbox.deliveriesOf(type), `${key.key} ${type}`).toBeGreaterThan(before[index]!);
      }
    }
    await vi.waitFor(() => expect([...new Set(receiver.types())].sort()).toEqual([...EVENT_TYPES].sort()), {
      timeout: 10_000,
    });
  });

  it('have a help line that fits the terminal and names each of them', () => {
    sandbox = new Sandbox();
    const keys = keysOf();
    const text = helpText(keys, 80);
    for (const { key, what } of keys) expect(text).toContain(`${key} ${what}`);
    for (const line of text.split('\n')) expect(line.length).toBeLessThanOrEqual(80);
  });
});

describe('a sandbox on a real terminal', () => {
  const ROOT = join(import.meta.dirname, '../..');

  it('does what a key says, ends with 0 on Ctrl-C, and leaves the terminal as it was', async () => {
    // util-linux's `script` gives the child a terminal; `stty` on it tells the mode before and after.
    const inner = `stty -a | grep -o ' -\\?icanon'; ${process.execPath} ${MAIN} sandbox --listen 127.0.0.1:0; echo "status $?"; stty -a | grep -o ' -\\?icanon'`;
    const child = spawn('script', ['-qec', inner, '/dev/null'], {
      cwd: ROOT,
      env: { ...process.env, SHELL: '/bin/sh', TERM: 'dumb' },
    });
    let output = '';
    child.stdout.on('data', (chunk: Buffer) => {
      output += chunk;
    });
    await vi.waitFor(() => expect(output).toContain('Keys: v value posted'), { timeout: 20_000, interval: 20 });
    child.stdin.write('u');
    await vi.waitFor(() => expect(output).toContain('u: asset_updated (asset 881)'), { timeout: 5000, interval: 20 });
    child.stdin.write('\u0003');
    const [code] = (await once(child, 'exit')) as [number];
    expect([code, output]).toEqual([0, expect.stringContaining('status 0')]);
    expect(output.match(/ -?icanon/g)).toEqual([' icanon', ' icanon']);
  });
});
