import { type Command, Option } from 'commander';
import { counted } from '../../base/amounts.ts';
import { jsonText } from '../../base/foreign-text.ts';
import { version } from '../../base/installation.ts';
import { writeBundle } from '../doctor/bundle.ts';
import { type CheckLine, lineText, openDoctorContext } from '../doctor/context.ts';
import { FILE_STEPS, INWARD_STEPS, runSteps } from '../doctor/steps.ts';
import { print } from '../terminal/output.ts';

interface Flags {
  json?: boolean;
  bundle?: string;
  inward?: boolean;
  files?: boolean;
}

/** Adds `tagferry doctor`. */
export function define(program: Command): void {
  program
    .command('doctor')
    .description('check the installation and recommend a fix for each failure')
    .option('--json', 'print the results as JSON')
    .option('--inward', 'skip platform and network checks')
    .option('--bundle <file>', 'archive for support (tar.gz) with redacted configuration, status and logs')
    // Used by `check --online`, which runs this command as the service.
    .addOption(new Option('--files', 'check the files on disk against the platform').hideHelp())
    .addHelpText('after', '\nExit status 1 if a check fails. Warnings do not affect the exit status.')
    .action(async (flags: Flags) => {
      const { config } = program.opts<{ config?: string }>();
      const subject = flags.files ? 'files' : 'agent';
      const context = await openDoctorContext(config, process.env, version(), subject);
      const say = (found: readonly CheckLine[]) => print(found.map(lineText).join('\n'));
      const steps = await runSteps(context, flags.json ? undefined : say, only(flags));
      // The calling `doctor` process merges the results.
      if (context.isService) return print(JSON.stringify(steps));
      const lines = Object.values(steps).flat();
      const bundle = flags.bundle === undefined ? undefined : await writeBundle(flags.bundle, context, lines);
      const failed = lines.filter((line) => line.state === 'failure').length;
      if (flags.json) {
        const report = { ok: failed === 0, checks: lines, ...(bundle ? { bundle } : {}) };
        print(jsonText(report));
      } else {
        const warned = lines.filter((line) => line.state === 'warning').length;
        print(`\n${counted(failed, 'failure')}, ${counted(warned, 'warning')}, ${lines.length - failed - warned} ok`);
        if (bundle) print(`Wrote ${bundle.file}. It contains no secrets and can be sent to support.`);
      }
      if (failed > 0) process.exitCode = 1;
    });
}

function only({ files, inward }: Flags): readonly string[] | undefined {
  return files ? FILE_STEPS : inward ? INWARD_STEPS : undefined;
}
