import { randomBytes } from 'node:crypto';
import { join } from 'node:path';
import type { Command } from 'commander';
import { removeDurably, writeDurably } from '../../base/durable-file.ts';
import { TagferryError } from '../../base/errors.ts';
import { jsonText } from '../../base/foreign-text.ts';
import { SESSION_FILE } from '../../platform/session/live-tokens.ts';
import { IDENTITY_FILE } from '../../store/gateway-identity.ts';
import { lockState } from '../../store/state-lock.ts';
import { neverRan } from '../../store/store-client.ts';
import { WEBHOOK_FILE } from '../../webhook/registration-file.ts';
import { agentOf } from '../connection/control-client.ts';
import { giveToOwner } from '../service/service-folder.ts';
import { confirmChange } from '../terminal/input.ts';

/** Adds `tagferry identity`. */
export function define(program: Command): void {
  program
    .command('identity')
    .description("manage this gateway's identity")
    .command('new')
    .description('create a new identity for a copied gateway, so that it no longer conflicts with the original')
    .option('--yes', 'skip the confirmation')
    .option('--json', 'print the result as JSON')
    .addHelpText(
      'after',
      '\nStop the service first. Run this command on the copy, never on the original: brokers do not resume earlier sessions, and their queued ' +
        "messages are lost. The copy discards the original's webhook and tokens but keeps buffered values and settings " +
        '(/usr/share/doc/tagferry/guide/replace.md).',
    )
    .action(async (flags: { yes?: boolean; json?: boolean }) => {
      await renew(agentOf(program).stateDir, flags);
    });
}

async function renew(stateDir: string, flags: { yes?: boolean; json?: boolean }): Promise<void> {
  if (neverRan(stateDir)) {
    throw new TagferryError(`no agent has used ${stateDir} yet: the agent creates an identity on its first start`, {
      code: 'identity.absent',
      hint: 'Run the command as root (sudo), or specify the configuration with --config.',
    });
  }
  const question = `Create a new identity for the gateway in ${stateDir}? Brokers will not resume its sessions.`;
  if (!(await confirmChange(question, flags.yes))) return;
  const lock = lockState(stateDir, 'verb');
  try {
    const identity = { machine: randomBytes(16).toString('hex'), folder: stateDir };
    await writeDurably(join(stateDir, IDENTITY_FILE), `${JSON.stringify(identity)}\n`);
    // Tokens and webhook belong to the original gateway. The agent would revoke the tokens and offer to delete the
    // webhook.
    for (const file of [SESSION_FILE, WEBHOOK_FILE]) await removeDurably(join(stateDir, file));
  } finally {
    lock.release();
    giveToOwner(stateDir);
  }
  if (flags.json) return void process.stdout.write(`${jsonText({ renewed: true, state_dir: stateDir })}\n`);
  process.stdout.write(
    'This gateway has a new identity.\n' +
      'Before you start it, change the settings that it shares with the original: WEBHOOK_URL in agent.env and client_id in tags.yaml.\n' +
      'Then run: sudo systemctl start tagferry\n',
  );
}
