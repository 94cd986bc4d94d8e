import { type ChildProcess, spawn } from 'node:child_process';
import { mkdtempSync, rmSync } from 'node:fs';
import { tmpdir } from 'node:os';
import { join } from 'node:path';
import { SANDBOX_CREDENTIALS, type Sandbox } from '../../../src/sandbox/sandbox.ts';
import { MAIN } from '../../built-agent.ts';
import { COMPILED_CODE } from '../../host/made-once.ts';
import { runVerb, type VerbOutcome } from './verb-run.ts';

const ROOT = join(import.meta.dirname, '../../..');

/** Opens the sign-in page and submits it like a browser. Returns the redirect address. */
export async function signInOnPage(
  address: string,
  email: string = SANDBOX_CREDENTIALS.userEmail,
  extra: Record<string, string> = {},
): Promise<string> {
  const page = await fetch(address);
  if (page.status !== 200) throw new Error(`the sign-in page answered ${page.status}: ${await page.text()}`);
  const fields = [...(await page.text()).matchAll(/type="hidden" name="(\w+)" value="([^"]*)"/g)];
  const body = new URLSearchParams(
    fields.map(([, name, value]): [string, string] => [name!, value!.replaceAll('&amp;', '&')]),
  );
  body.set('username', email);
  body.set('password', `${email.split('@')[0]}-password`);
  for (const [name, value] of Object.entries(extra)) body.set(name, value);
  const answer = await fetch(new URL('/app/id/sign_in', address), { method: 'POST', body, redirect: 'manual' });
  return answer.headers.get('location') ?? '';
}

/** A running `tagferry login` that is waiting for the browser. */
export class LoginProcess {
  readonly child: ChildProcess;
  stdout = '';
  stderr = '';
  readonly #ended: Promise<number | null>;

  constructor(args: readonly string[], environment: NodeJS.ProcessEnv) {
    this.child = spawn(process.execPath, [MAIN, 'login', ...args], {
      cwd: ROOT,
      env: environment,
    });
    this.child.stdout!.setEncoding('utf8').on('data', (text: string) => {
      this.stdout += text;
    });
    this.child.stderr!.setEncoding('utf8').on('data', (text: string) => {
      this.stderr += text;
    });
    this.#ended = new Promise((resolve) => this.child.once('exit', resolve));
  }

  /** Resolves with the printed address. */
  async address(): Promise<string> {
    for (;;) {
      const found = /^http\S+\/app\/id\/sign_in\?\S+$/m.exec(this.stdout + this.stderr);
      if (found) return found[0];
      if (this.child.exitCode !== null) throw new Error(`login ended: ${this.stdout}${this.stderr}`);
      await new Promise((resolve) => setTimeout(resolve, 10));
    }
  }

  async ended(): Promise<number | null> {
    return await this.#ended;
  }
}

/** An account with a state folder, and an environment with a sandbox and CLIENT_ID but no secret. */
export class Account {
  readonly folder = mkdtempSync(join(tmpdir(), 'tagferry-person-'));
  readonly environment: Record<string, string>;

  constructor(sandbox: Sandbox, more: Record<string, string> = {}) {
    this.environment = {
      ...COMPILED_CODE,
      PATH: process.env.PATH ?? '',
      HOME: this.folder,
      NO_COLOR: '1',
      XDG_STATE_HOME: join(this.folder, 'state'),
      TAGFERRY_CONFIG: join(this.folder, 'config'),
      PLATFORM_URL: sandbox.url,
      CLIENT_ID: SANDBOX_CREDENTIALS.clientId,
      ...more,
    };
  }

  login(...args: string[]): LoginProcess {
    return new LoginProcess(['--redirect', 'http://127.0.0.1:0/callback', ...args], this.environment);
  }

  /** Completes a sign-in like a browser. */
  async signIn(email?: string, ...args: string[]): Promise<LoginProcess> {
    const login = this.login(...args);
    await fetch(await signInOnPage(await login.address(), email));
    await login.ended();
    return login;
  }

  run(...args: string[]): Promise<VerbOutcome> {
    return runVerb(args, this.environment);
  }

  /** Runs a verb on a terminal (`script`) and types an answer to its first question. */
  onTerminal(
    answer: string | ((screen: string) => Promise<string>),
    ...args: string[]
  ): Promise<{ status: number | null; screen: string }> {
    const words = [process.execPath, MAIN, ...args].map((word) => `'${word}'`);
    const child = spawn('script', ['-qec', words.join(' '), '/dev/null'], { cwd: ROOT, env: this.environment });
    let screen = '';
    let answered = false;
    child.stdout.setEncoding('utf8').on('data', (text: string) => {
      screen += text;
      if (answered || !/\[y\/N\] |[Pp]aste /.test(screen)) return;
      answered = true;
      void Promise.resolve(typeof answer === 'string' ? answer : answer(screen)).then((line) =>
        child.stdin.write(`${line}\r`),
      );
    });
    return new Promise((resolve) => child.once('close', (status) => resolve({ status, screen })));
  }

  dispose(): void {
    rmSync(this.folder, { recursive: true, force: true });
  }
}
