import type { Sandbox } from '../../../src/sandbox/sandbox.ts';
import { sign } from '../../../src/webhook/signature.ts';

/** Delivers an event in the same way as the platform. Returns the response status. */
export async function deliverEvent(
  sandbox: Sandbox,
  {
    key,
    value,
    instrumentation,
    content = {},
  }: { key: string; value: number; instrumentation: number; content?: object },
): Promise<number> {
  const body = JSON.stringify({
    event_type: 'threshold_reached',
    occurred_at: new Date().toISOString(),
    content: {
      asset: { id: 881 },
      instrumentation: { id: instrumentation },
      data: { key, value },
      threshold: { type: 'high' },
      ...content,
    },
  });
  const { url, secret } = sandbox.webhooks()[0]!;
  const headers = { 'X-Hub-Signature-Sha256': sign(Buffer.from(body), secret) };
  return (await fetch(url, { method: 'POST', body, headers })).status;
}
