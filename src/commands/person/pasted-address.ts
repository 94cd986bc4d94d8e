import { createInterface } from 'node:readline';
import { messageOf, UsageError } from '../../base/errors.ts';

/** How often a person may paste something else before the sign-in is given up. */
const MAX_TRIES = 5;

/**
 * Asks for the address that the browser was sent to, until one is usable. `check` throws for one that is not. Rejects
 * with the signal's reason as soon as it fires, and where standard input ends.
 */
export async function pastedAddress<Result>(
  question: string,
  check: (redirect: URL) => Result,
  signal: AbortSignal,
): Promise<Result> {
  const isTerminal = process.stdin.isTTY === true;
  const reader = createInterface({ input: process.stdin, output: process.stderr, terminal: isTerminal });
  reader.setPrompt(question);
  const close = () => reader.close();
  signal.addEventListener('abort', close, { once: true });
  // Ctrl-C belongs to the whole sign-in, not to the line.
  reader.on('SIGINT', () => process.kill(process.pid, 'SIGINT'));
  try {
    let tries = 0;
    reader.prompt();
    for await (const line of reader) {
      try {
        return check(addressIn(line.trim()));
      } catch (error) {
        if (!isTerminal || ++tries >= MAX_TRIES) throw error;
        process.stderr.write(`${messageOf(error)}. Once more.\n`);
        reader.prompt();
      }
    }
    signal.throwIfAborted();
    throw new UsageError('no address was pasted', 'Paste the address that the browser was sent to.');
  } finally {
    signal.removeEventListener('abort', close);
    reader.close();
  }
}

function addressIn(line: string): URL {
  if (URL.canParse(line)) return new URL(line);
  throw new UsageError('this is no address', 'Paste the whole of it, from http on.');
}
