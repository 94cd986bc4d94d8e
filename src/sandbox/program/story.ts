import { plain } from '../../base/foreign-text.ts';
import type { RequestEntry, Sandbox } from '../sandbox.ts';

/**
 * Prints what happens: one line a request (who, what, how it was answered), a delivery, and a happening behind the
 * scenes. As text it reads like a story, as JSON it is for programs.
 */
export function followStory(sandbox: Sandbox, asJson: boolean): void {
  const say = (at: string, text: string) => process.stdout.write(`${at.slice(11, 19)}  ${plain(text)}\n`);
  sandbox.requests.onRequest((entry) => {
    if (asJson) print({ event: 'sandbox.request', ...entry });
    else say(entry.at, requestLine(entry));
  });
  sandbox.requests.onHappened((happened) => {
    if (asJson) print({ event: 'sandbox.happened', ...happened });
    else say(happened.at, `— ${happened.text}`);
  });
  sandbox.onDelivery(({ delivery, webhook, answer, nextInMs }) => {
    const at = new Date(sandbox.clock.wallMs()).toISOString();
    const { id, eventType, attempts, status } = delivery;
    if (asJson) {
      print({ event: 'sandbox.delivery', at, id, eventType, attempts, status, webhook: webhook.id, answer, nextInMs });
      return;
    }
    const next =
      nextInMs !== undefined ? `, again in ${Math.round(nextInMs / 1000)} s` : isGood(answer) ? '' : ', given up';
    say(at, `${eventType} is sent to webhook ${webhook.id}, attempt ${attempts}: ${answer}${next}`);
  });
}

export function print(line: object): void {
  process.stdout.write(`${JSON.stringify(line)}\n`);
}

function isGood(answer: number | string): boolean {
  return typeof answer === 'number' && answer >= 200 && answer < 300;
}

function requestLine(entry: RequestEntry): string {
  const who = entry.user ?? 'somebody';
  const what = entry.story ?? `${entry.method} ${entry.path}`;
  const answer = entry.status === 0 ? 'no answer' : String(entry.status);
  const why = entry.refused === undefined ? '' : `, ${entry.refused}`;
  const fault = entry.fault === undefined ? '' : ` (${entry.fault})`;
  const says = entry.story === undefined || entry.user !== undefined ? `${who}: ` : '';
  return `${says}${what}: ${answer} in ${entry.durationMs} ms${why}${fault}`;
}
