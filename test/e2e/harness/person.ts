import { type ChildProcess, spawn } from 'node:child_process';
import { mkdirSync, mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { MAIN } from '../../built-agent.ts';
import { COMPILED_CODE } from '../../host/made-once.ts';
import { CREDENTIALS, type Platform } from './platform.ts';
import type { VerbOutcome } from './verb.ts';

/**
 * Opens the sign-in page and submits it like a browser, without following the final redirect. Returns the address of
 * that redirect.
 */
export async function signInOnPage(address: string, email: string = CREDENTIALS.userEmail): Promise<string> {
  const page = await fetch(address);
  const html = await page.text();
  if (page.status !== 200) throw new Error(`the sign-in page answered ${page.status}: ${html}`);
  const hidden = [...html.matchAll(/type="hidden" name="(\w+)" value="([^"]*)"/g)];
  const fields = hidden.map(([, name, value]): [string, string] => [name!, value!.replaceAll('&amp;', '&')]);
  const body = new URLSearchParams([...fields, ['username', email], ['password', `${email.split('@')[0]}-password`]]);
  const response = await fetch(new URL('/app/id/sign_in', address), { method: 'POST', body, redirect: 'manual' });
  return response.headers.get('location') ?? '';
}

/** Running command of a person. */
export class PersonCommand {
  readonly #child: ChildProcess;
  stdout = '';
  stderr = '';
  /** Resolves with the exit status. */
  readonly ended: Promise<number>;

  constructor(args: readonly string[], env: NodeJS.ProcessEnv, cwd: string) {
    this.#child = spawn(process.execPath, [MAIN, ...args], { cwd, env, stdio: ['ignore', 'pipe', 'pipe'] });
    for (const name of ['stdout', 'stderr'] as const) {
      this.#child[name]!.setEncoding('utf8').on('data', (text: string) => {
        this[name] += text;
      });
    }
    this.ended = new Promise((resolve) => this.#child.once('close', (code) => resolve(code ?? -1)));
  }

  /** Returns the address of the sign-in page after `tagferry login` has printed it. */
  async address(): Promise<string> {
    for (;;) {
      const found = /^http\S+\/app\/id\/sign_in\?\S+$/m.exec(this.stdout + this.stderr);
      if (found) return found[0];
      if (this.#child.exitCode !== null) throw new Error(`login ended: ${this.stdout}${this.stderr}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  kill(): void {
    this.#child.kill('SIGKILL');
  }
}

/** A person's account on a machine without an agent, with its own folders and the public settings of a platform. */
export class Person {
  readonly folder = mkdtempSync(join(tmpdir(), 'tagferry-person-'));
  readonly environment: Record<string, string>;
  readonly #commands: PersonCommand[] = [];

  constructor(platform: Platform) {
    mkdirSync(join(this.folder, 'config'));
    this.environment = {
      ...COMPILED_CODE,
      PATH: process.env.PATH ?? '',
      HOME: this.folder,
      NO_COLOR: '1',
      XDG_STATE_HOME: join(this.folder, 'state'),
      TAGFERRY_CONFIG: join(this.folder, 'config'),
      PLATFORM_URL: platform.url,
      CLIENT_ID: CREDENTIALS.clientId,
    };
  }

  /** Starts `tagferry login`, which waits for a browser. */
  login(...args: string[]): PersonCommand {
    return this.#start(['login', '--redirect', 'http://127.0.0.1:0/callback', ...args]);
  }

  async signIn(): Promise<void> {
    const login = this.login();
    await fetch(await signInOnPage(await login.address()));
    if ((await login.ended) !== 0) throw new Error(`login failed: ${login.stderr}`);
  }

  async run(...args: string[]): Promise<VerbOutcome> {
    const command = this.#start(args);
    return { status: await command.ended, stdout: command.stdout, stderr: command.stderr };
  }

  #start(args: readonly string[]): PersonCommand {
    const command = new PersonCommand(args, this.environment, this.folder);
    this.#commands.push(command);
    return command;
  }

  dispose(): void {
    for (const command of this.#commands) command.kill();
    rmSync(this.folder, { recursive: true, force: true });
  }
}
