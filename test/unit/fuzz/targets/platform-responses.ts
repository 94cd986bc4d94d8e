import { PlatformError } from '../../../../src/base/errors.ts';
import { Redactor } from '../../../../src/base/redactor.ts';
import { ApiCalls } from '../../../../src/platform/client.ts';
import type { PlatformAnswer as Answer } from '../../../../src/platform/http-boundary.ts';
import { PlatformClock } from '../../../../src/platform/platform-clock.ts';
import {
  listApiSubscriptions,
  listClientApplications,
} from '../../../../src/platform/resources/connect-subscription.ts';
import { listPermissions } from '../../../../src/platform/resources/permissions.ts';
import { Webhooks } from '../../../../src/platform/resources/webhooks.ts';
import {
  CallRefusal,
  GrantError,
  processRevokeAnswer,
  processTokenAnswer,
  verdictOfAnswer,
} from '../../../../src/platform/response-meanings.ts';
import { readArrivals } from '../../../../src/webhook/delivery-list.ts';
import { canonicalise, decode, identityOf } from '../../../../src/webhook/identity.ts';
import { arrivalLine, readEvent } from '../../../../src/webhook/received-event.ts';
import { sign, verifySignature } from '../../../../src/webhook/signature.ts';
import { ManualClock } from '../../doubles/manual-clock.ts';
import { demand, demandSame, type FuzzTarget, headAndRest, refusing } from '../target.ts';

const SECRET = 'hunter-of-the-plant';
const PLAIN = /^[^\p{Cc}\u2028\u2029\u202e]*$/u;

const redactor = new Redactor();
redactor.configure([SECRET]);

/** The first line contains the status and headers as JSON, the rest is the body. */
function answerOf(bytes: Buffer): Answer {
  const { head, rest } = headAndRest(bytes);
  const [status = '', ...lines] = head.split('|');
  const headers = new Map(lines.map((line) => [line.split(':')[0]!.toLowerCase(), line.slice(line.indexOf(':') + 1)]));
  return {
    status: Number.parseInt(status, 10) || 200,
    header: (name) => headers.get(name.toLowerCase()),
    text: rest.toString('utf8'),
    redact: (text) => redactor.redact(text),
  };
}

class OneAnswer extends ApiCalls {
  override readonly platformClock = new PlatformClock(new ManualClock());
  readonly #answer: Answer;
  calls = 0;

  constructor(answer: Answer) {
    super();
    this.#answer = answer;
  }

  async request(): Promise<Answer> {
    this.calls++;
    return this.#answer;
  }
}

const platformAnswer: FuzzTarget = {
  name: 'platform-answer',
  seeds: [
    '200|content-type:application/json\n{"access_token":"abc","token_type":"Bearer","expires_in":7200,"refresh_token":"d"}',
    `401|content-type:application/json\n{"error":"invalid_grant","error_description":"no ${SECRET}"}`,
    '429|retry-after:120|date:Sat, 21 Nov 2026 00:00:30 GMT\n{"errors":[{"type":"t","message":"m","attribute":"a"}]}',
    '503|retry-after:Sat, 21 Nov 2026 00:00:30 GMT|content-type:text/html\n<html><p>Gone\u202e\u0007</p>',
    '204|content-length:0\n',
    '200|location:/v1/webhooks/12\n{"events":[{"id":1,"payload":{"event_type":"x"},"status":"failed","last_send_at":"2026-11-21T00:00:00Z"}],"pagination":{"page_count":2}}',
    '201|location:https://x/webhooks/9?y\n{"id":3,"secret":"s"}',
    '200|\n{"webhooks":[{"id":3,"url":"https://x","event_types":["e"],"properties":{"e\u202e":["a",1]},"disabled":true}]}',
    '200|\n{"permissions":[{"id":"3","permission_types":["can_read"],"permission_type":"can_read","assignable":{"id":1,"type":"User"}}]}',
    '200|\n{"client_applications":[{"id":3,"name":null}],"api_subscriptions":[{"api_call_quota":9,"api_calls_used":"3"}]}',
  ],
  async run(bytes) {
    const answer = answerOf(bytes);
    const context = { grant: 'password' } as const;
    for (const process of [processTokenAnswer, processRevokeAnswer]) {
      refusing(
        (error) => {
          if (!(error instanceof GrantError)) return false;
          demand(!error.message.includes(SECRET), 'a secret stands in an error');
          demand(PLAIN.test(error.message), 'a control character stands in an error');
          return error.message.length < 1_000;
        },
        () => process(answer, context),
      );
    }
    const verdict = verdictOfAnswer(answer, [204]);
    demand(verdict.meaning !== 'delivered' || (answer.status === 204 && answer.text === ''), 'delivered without a 204');
    demand(verdict.reason.length <= 300 && PLAIN.test(verdict.reason), 'words of the platform are not plain');
    demand(PLAIN.test(new CallRefusal(answer, 'GET /x').message), 'an error is not plain');
    const closedMs = new PlatformClock(new ManualClock(0)).closedMs(answer);
    demand(closedMs > 0 && closedMs < 400_000, `a 429 pauses requests for ${closedMs} ms`);
    await reading(answer);
  },
};

/** Reading a list ends, regardless of its content. A response is valid or throws a `TagferryError`. */
async function reading(answer: Answer): Promise<void> {
  const platform = new OneAnswer(answer);
  const registered = { application: 1, webhook: 2, scope: 's' };
  try {
    for await (const { events } of readArrivals(platform, registered as never, 0, () => 0)) {
      for (const event of events) JSON.stringify(arrivalLine(event, 'list'));
      if (platform.calls > 8) break;
    }
  } catch (error) {
    if (!(error instanceof PlatformError)) throw error;
  }
  const lists = [
    (calls: ApiCalls) => new Webhooks(calls, 1).list(),
    (calls: ApiCalls) => listClientApplications(calls),
    (calls: ApiCalls) => listApiSubscriptions(calls),
    (calls: ApiCalls) => listPermissions(calls, 2, { id: 1, type: 'Asset' }),
    (calls: ApiCalls) => listPermissions(calls, 1, { id: 1, type: 'Asset' }),
  ];
  for (const list of lists) {
    const calls = new OneAnswer(answer);
    try {
      for await (const entry of list(calls)) {
        JSON.stringify(entry);
        if (calls.calls > 8) break;
      }
    } catch (error) {
      if (!(error instanceof PlatformError)) throw error;
      demand(PLAIN.test(error.message) && error.message.length < 10_000, 'the error of a list is not plain');
    }
  }
  const webhooks = new Webhooks(new OneAnswer(answer), 1);
  for (const call of [webhooks.create({} as never), webhooks.resetSecret(1), webhooks.delete(1)]) {
    const given = await call.catch((error: unknown) => {
      if (error instanceof PlatformError) return undefined;
      throw error;
    });
    demand(
      given === undefined || typeof given === 'string' || Number.isInteger(given.id),
      'a webhook without a number',
    );
  }
}

/** The first line is the signature header, the rest is the body. */
const webhookBody: FuzzTarget = {
  name: 'webhook-body',
  seeds: [
    'sha256=00\n{"event_type":"asset_updated","occurred_at":"2026-11-21T00:00:00.000Z","content":{"asset":{"id":1}}}',
    `${sign(Buffer.from('{}'), SECRET)}\n{}`,
    '\n{"b":1,"a":[1.0,-0,1e3,12345678901234567890,"\\u00e4"],"":{"a":null}}',
    'SHA256=x\n[[[[[[]]]]]]',
    'sha1=00\n{"a":1,"a":2}',
  ],
  run(bytes) {
    const { head, rest } = headAndRest(bytes);
    const verdict = verifySignature({ sha256: head, sha1: head }, rest, [SECRET, ''], true);
    demand(verdict.ok === (head.trim().toLowerCase() === sign(rest, SECRET)), 'a signature that is none counts');
    const event = readEvent(rest, 0);
    demand(event.eventType.length <= 100, 'a name of an event is too long');
    JSON.stringify(arrivalLine(event, 'push'));
    const text = decode(rest);
    const form = text === undefined ? undefined : canonicalise(text);
    if (form === undefined) return;
    demandSame('a canonical form and its own', canonicalise(form), form);
    demandSame('an event and its canonical form', [...identityOf(Buffer.from(form))], [...event.identity]);
    demandSame('an event and itself on lines', [...identityOf(Buffer.from(` ${text}\n`))], [...event.identity]);
  },
};

export const PLATFORM_WORDS = [platformAnswer, webhookBody];
