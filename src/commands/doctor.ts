import type { Command } from 'commander';
import { messageOf } from '../errors.ts';
import { version } from '../installation.ts';
import { counted } from './amounts.ts';
import { writeBundle } from './doctor/bundle.ts';
import { checkConfigurationFiles } from './doctor/configuration.ts';
import { beginConsultation } from './doctor/consultation.ts';
import { checkDevices } from './doctor/devices.ts';
import { type Check, type CheckLine, failure } from './doctor/finding.ts';
import { checkListeners } from './doctor/listeners.ts';
import { checkClock } from './doctor/machine-clock.ts';
import { checkNetwork } from './doctor/network.ts';
import { checkPlatform } from './doctor/platform.ts';
import { checkService } from './doctor/service.ts';
import { checkStateFolder } from './doctor/state-folder.ts';
import { painter, plain, widthOf, wrapped } from './table.ts';

interface Flags {
  json?: boolean;
  bundle?: string;
}

/** In this order: what fails early explains what fails later. */
const CHECKS: readonly [name: string, check: Check][] = [
  ['configuration', checkConfigurationFiles],
  ['state', checkStateFolder],
  ['clock', checkClock],
  ['service', checkService],
  ['listener', checkListeners],
  ['network', checkNetwork],
  ['platform', checkPlatform],
  ['devices', checkDevices],
];

const COLOUR = { ok: 'green', warning: 'yellow', failure: 'red' } as const;
const NAME_WIDTH = 18;

/** Adds `tagferry doctor`: the installation, step by step. */
export function define(program: Command): void {
  program
    .command('doctor')
    .description('check the installation step by step and say what to do about each failure')
    .option('--json', 'print the lines as JSON')
    .option('--bundle <file>', 'write an archive (tar.gz) for support: redacted configuration, status, logs')
    .addHelpText('after', '\nExit status 1 where a line is a failure. Warnings do not count.')
    .action(async (flags: Flags) => {
      const consultation = await beginConsultation(program.opts<{ config?: string }>().config, process.env, version());
      const lines: CheckLine[] = [];
      for (const [name, check] of CHECKS) {
        const found = await runCheck(name, () => check(consultation));
        lines.push(...found);
        if (!flags.json) for (const line of found) print(lineText(line));
      }
      const bundle = flags.bundle === undefined ? undefined : await writeBundle(flags.bundle, consultation, lines);
      const failed = lines.filter((line) => line.state === 'failure').length;
      if (flags.json) {
        const report = { ok: failed === 0, checks: lines, ...(bundle ? { bundle } : {}) };
        print(JSON.stringify(report, null, 2));
      } else {
        const warned = lines.filter((line) => line.state === 'warning').length;
        print(`\n${counted(failed, 'failure')}, ${counted(warned, 'warning')}, ${lines.length - failed - warned} ok`);
        if (bundle) print(`${bundle.file} can be mailed to support: no secret is in it.`);
      }
      if (failed > 0) process.exitCode = 1;
    });
}

/** A check that breaks is a failure of its own, and the others go on. */
async function runCheck(name: string, check: () => Promise<CheckLine[]> | CheckLine[]): Promise<CheckLine[]> {
  try {
    return await check();
  } catch (error) {
    return [
      failure(name, `this check broke: ${plain(messageOf(error))}`, 'Tell support, with `tagferry doctor --bundle`.'),
    ];
  }
}

function lineText({ state, check, message, next }: CheckLine): string {
  const paint = painter(process.stdout, process.env);
  const indent = ' '.repeat(9 + NAME_WIDTH);
  // In a pipe a line stays a line, for grep.
  const width = process.stdout.isTTY ? widthOf(process.stdout) - indent.length : Number.POSITIVE_INFINITY;
  const lines = wrapped(plain(message), width);
  if (next !== '') lines.push(...wrapped(`next: ${next}`, width));
  return `${paint(state.padEnd(8), COLOUR[state])} ${check.padEnd(NAME_WIDTH)}${lines.join(`\n${indent}`)}`;
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
