import { type Command, Option } from 'commander';
import { counted } from '../base/amounts.ts';
import { jsonText } from '../base/foreign-text.ts';
import { version } from '../base/installation.ts';
import { writeBundle } from './doctor/bundle.ts';
import { beginConsultation } from './doctor/consultation.ts';
import type { CheckLine } from './doctor/finding.ts';
import { lineText } from './doctor/line-text.ts';
import { FILE_STEPS, INWARD_STEPS, runSteps } from './doctor/steps.ts';

interface Flags {
  json?: boolean;
  bundle?: string;
  inward?: boolean;
  files?: boolean;
}

/** Adds `tagferry doctor`: the installation, step by step. */
export function define(program: Command): void {
  program
    .command('doctor')
    .description('check the installation step by step and say what to do about each failure')
    .option('--json', 'print the lines as JSON')
    .option('--inward', 'ask nobody outside this machine: neither the platform nor the network')
    .option('--bundle <file>', 'write an archive (tar.gz) for support: redacted configuration, status, logs')
    // For `check --online`, which looks with the service's eyes.
    .addOption(new Option('--files', 'ask the platform about the files on disk').hideHelp())
    .addHelpText('after', '\nExit status 1 where a line is a failure. Warnings do not count.')
    .action(async (flags: Flags) => {
      const { config } = program.opts<{ config?: string }>();
      const subject = flags.files ? 'files' : 'agent';
      const consultation = await beginConsultation(config, process.env, version(), subject);
      const say = (found: readonly CheckLine[]) => print(found.map(lineText).join('\n'));
      const steps = await runSteps(consultation, flags.json ? undefined : say, only(flags));
      // For the one who looks through the service's eyes.
      if (consultation.isService) return print(JSON.stringify(steps));
      const lines = Object.values(steps).flat();
      const bundle = flags.bundle === undefined ? undefined : await writeBundle(flags.bundle, consultation, lines);
      const failed = lines.filter((line) => line.state === 'failure').length;
      if (flags.json) {
        const report = { ok: failed === 0, checks: lines, ...(bundle ? { bundle } : {}) };
        print(jsonText(report));
      } else {
        const warned = lines.filter((line) => line.state === 'warning').length;
        print(`\n${counted(failed, 'failure')}, ${counted(warned, 'warning')}, ${lines.length - failed - warned} ok`);
        if (bundle) print(`${bundle.file} can be mailed to support: no secret is in it.`);
      }
      if (failed > 0) process.exitCode = 1;
    });
}

function only({ files, inward }: Flags): readonly string[] | undefined {
  return files ? FILE_STEPS : inward ? INWARD_STEPS : undefined;
}

function print(text: string): void {
  process.stdout.write(`${text}\n`);
}
