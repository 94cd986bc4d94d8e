import { expect, it } from 'vitest';
import { logConsole } from '../../../src/base/console-lines.ts';
import { silentLogger } from '../../../src/base/logger.ts';

// Found by fuzzing a NATS server: the library prints its input unchanged.
it('library output is logged on a single line of limited length', () => {
  const log = silentLogger();
  const lines: { event: string; text: string }[] = [];
  log.debug = ((fields: (typeof lines)[number]) => lines.push(fields)) as typeof log.debug;
  const printer = { ...console };
  logConsole(log, printer);
  printer.error(`PONG\r\n{"level":"fatal"}\u001b[2J${'x'.repeat(900)}`);
  expect(lines).toEqual([
    { event: 'agent.library_said', text: expect.stringMatching(/^PONG \{"level":"fatal"\}\\u001b/) },
  ]);
  expect(lines[0]!.text.length).toBeLessThanOrEqual(600);
  expect(lines[0]!.text).not.toMatch(/[\r\n]/);
});
