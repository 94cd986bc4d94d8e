import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { Command } from 'commander';
import { removeDurably, writeDurably } from '../base/durable-file.ts';
import { TagferryError } from '../base/errors.ts';
import { jsonText } from '../base/foreign-text.ts';
import { SESSION_FILE } from '../platform/session/session-file.ts';
import { IDENTITY_FILE } from '../store/gateway-identity.ts';
import { lockState } from '../store/state-lock.ts';
import { neverRan } from '../store/store-client.ts';
import { WEBHOOK_FILE } from '../webhook/registration-file.ts';
import { confirm } from './asking.ts';
import { daemonPlace } from './control-client.ts';
import { giveToOwner } from './state-owner.ts';

/** Adds `tagferry identity`. */
export function define(program: Command): void {
  program
    .command('identity')
    .description('an identity of its own for a machine that was copied')
    .command('new')
    .description('give this gateway a new identity, so that it no longer disturbs the gateway that it was copied from')
    .option('--yes', 'do not ask')
    .option('--json', 'print the outcome as JSON')
    .addHelpText(
      'after',
      '\nStop the service first. Run it on the copy, never on the original: brokers do not resume its earlier sessions, and messages that they ' +
        'keep for those do not arrive here. The copy forgets the webhook and the tokens of the original. Buffered values and settings stay ' +
        '(/usr/share/doc/tagferry/replace.md).',
    )
    .action(async (flags: { yes?: boolean; json?: boolean }) => {
      const { config } = program.opts<{ config?: string }>();
      await renew(daemonPlace(config, process.env).stateDir, flags);
    });
}

async function renew(stateDir: string, flags: { yes?: boolean; json?: boolean }): Promise<void> {
  if (neverRan(stateDir)) {
    throw new TagferryError(`no agent has used ${stateDir} yet: it gets an identity at its first start`, {
      code: 'identity.absent',
      hint: 'Run the command as root (sudo), or name the configuration with --config.',
    });
  }
  const question = `Give the gateway with the state folder ${stateDir} a new identity? Brokers do not resume its sessions.`;
  if (!(await confirm(question, flags.yes))) {
    process.stdout.write('Nothing was changed.\n');
    process.exitCode = 1;
    return;
  }
  const lock = lockState(stateDir, 'verb');
  try {
    const identity = { machine: randomBytes(16).toString('hex'), folder: stateDir };
    await writeDurably(join(stateDir, IDENTITY_FILE), `${JSON.stringify(identity)}\n`);
    // The tokens and the webhook are those of the original: an agent would revoke the tokens, and offer to delete the webhook.
    for (const file of [SESSION_FILE, WEBHOOK_FILE]) await removeDurably(join(stateDir, file));
  } finally {
    lock.release();
    giveToOwner(stateDir);
  }
  if (flags.json) return void process.stdout.write(`${jsonText({ renewed: true, state_dir: stateDir })}\n`);
  process.stdout.write(
    'This gateway has a new identity.\n' +
      'Before you start it, change what the copy still shares with the original: WEBHOOK_URL in agent.env, and client_id in tags.yaml.\n' +
      'Then run: sudo systemctl start tagferry\n',
  );
}
