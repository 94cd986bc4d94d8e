import { afterEach, beforeEach } from 'vitest';
import { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { Receiver } from './receiver.ts';
import { Visitor } from './visitor.ts';

/** Webhooks of the visitor's client application. */
export const WEBHOOKS = '/v1/client_applications/3/webhooks';

/** Sandbox, signed-in visitor and webhook receiver, recreated for each test of a file. */
export interface Audience {
  sandbox: Sandbox;
  visitor: Visitor;
  receiver: Receiver;
  register(event_types: readonly string[], more?: object): ReturnType<Visitor['call']>;
}

export function audience(): Audience {
  const one = {
    register: (event_types: readonly string[], more: object = {}) =>
      one.visitor.call('POST', WEBHOOKS, { url: one.receiver.url, event_types, ...more }),
  } as Audience;
  beforeEach(async () => {
    one.sandbox = new Sandbox();
    one.receiver = new Receiver();
    await one.sandbox.start();
    await one.receiver.start();
    one.visitor = await Visitor.signedIn(one.sandbox);
  });
  afterEach(async () => {
    await one.sandbox.stop();
    await one.receiver.stop();
  });
  return one;
}
