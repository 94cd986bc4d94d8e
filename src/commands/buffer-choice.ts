import type { Command } from 'commander';
import { UsageError } from '../base/errors.ts';

/** Which series a verb of `tagferry buffer` means. */
export interface Choice {
  tag?: string;
  asset?: string;
  key?: string;
  json?: boolean;
}

export function chosen(command: Command): Command {
  return command
    .option('--tag <name>', 'only this tag of tags.yaml')
    .option('--asset <number>', 'only this asset')
    .option('--key <key>', 'only this key')
    .option('--json', 'print JSON');
}

/** As the daemon is asked. Throws `UsageError`. */
export function choiceOf({ tag, asset, key }: Choice): Record<string, unknown> {
  return { tag, key, asset: asset === undefined ? undefined : numberOf('--asset', asset) };
}

export function numberOf(flag: string, text: string): number {
  if (!/^[1-9]\d{0,15}$/.test(text))
    throw new UsageError(`${flag} is the number of an asset, not ${JSON.stringify(text)}`);
  return Number(text);
}
