import type { Command } from 'commander';
import { UsageError } from '../../base/errors.ts';
import { jsonText, plain } from '../../base/foreign-text.ts';
import { prove } from '../../control/write-proof.ts';
import type { ConfirmedWrite, PreviewedWrite } from '../../control/write-routes.ts';
import { agentOf, askAgent } from '../connection/control-client.ts';
import { confirmChange } from '../terminal/input.ts';
import { print } from '../terminal/output.ts';

/** Adds `tagferry write`. */
export function define(program: Command): void {
  program
    .command('write')
    .description('write a value to a device, within the limits in tags.yaml (root only)')
    .argument('<tag>', 'tag in tags.yaml')
    .argument('<key>', 'key of a writable value')
    .argument('<value>', 'number to write, in the unit of the value')
    .option('--group <group>', 'group of the value, if several groups contain the key')
    .option('--yes', 'write the value without asking for confirmation')
    .option('--json', 'print the result as JSON')
    .action(
      async (tag: string, key: string, text: string, flags: { group?: string; yes?: boolean; json?: boolean }) => {
        const value = text.trim() === '' ? Number.NaN : Number(text);
        if (!Number.isFinite(value)) throw new UsageError(`value must be a number, not ${JSON.stringify(text)}`);
        if (process.getuid?.() !== 0) throw new UsageError('only root can write values', 'Run `sudo tagferry write`.');
        const place = agentOf(program);
        const name = plain([tag, flags.group, key].filter(Boolean).join(' '));
        const write = { tag, key, group: flags.group, value };
        const preview = await askAgent<PreviewedWrite>(place, 'write/preview', write);
        const now = preview.previous === null ? 'current value unknown' : `currently ${Number(preview.previous)}`;
        const rounded = preview.value === value ? '' : `, stored as ${Number(preview.value)}`;
        const question = `Write ${value}${rounded} to ${name} (${now})? If not, nothing is written.`;
        if (!(await confirmChange(question, flags.yes))) return;
        const { SUDO_USER: user = 'root' } = process.env;
        const { id, remove } = await prove({ ...write, user: /^[\w.-]{1,64}$/.test(user) ? user : 'root' });
        const result = await askAgent<ConfirmedWrite>(place, 'write/confirm', { id }).finally(remove);
        if (result.outcome !== 'written') process.exitCode = 1;
        print(flags.json ? jsonText(result) : `${name}: ${plain(result.outcome)} (${plain(result.detail)})`);
      },
    );
}
