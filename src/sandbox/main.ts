#!/usr/bin/env node
/**
 * `tagferry-sandbox`: the sandbox as a program of its own, for whoever builds a client of the service. The same verbs as
 * `tagferry sandbox`, on any Node from 20 on: nothing here needs the agent's stores.
 */
import { Command } from 'commander';
import { endWithReader, reportError } from '../base/command-end.ts';
import { version } from '../base/installation.ts';
import { describe } from './program/verbs.ts';

/** The verbs' own texts name them as `tagferry` has them. */
const spelled = (text: string) => text.replaceAll('tagferry sandbox', 'tagferry-sandbox');

const program = new Command('tagferry-sandbox')
  .version(version())
  .configureOutput({
    writeOut: (text) => process.stdout.write(spelled(text)),
    writeErr: (text) => process.stderr.write(spelled(text)),
  })
  .exitOverride();
describe(program);
endWithReader();
try {
  await program.parseAsync(process.argv);
} catch (error) {
  reportError('tagferry-sandbox', error, spelled);
}
