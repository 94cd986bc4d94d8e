import { PageFiles } from '../../base/inbound/page-files.ts';
import { BUILT_PAGES } from '../../base/installation.ts';
import { isLoopbackHost } from '../../base/listen.ts';
import type { Stage } from '../admin/stage.ts';
import type { Answer, Call } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import { LiveStream } from './live-stream.ts';

/** `/sandbox/`: the site and what its clients do, to look at and to meddle with. On loopback alone: it acts without a login. */
export function addPageEndpoints(router: Router, stage: Stage): void {
  const files = new PageFiles(new URL('sandbox/', BUILT_PAGES));
  const live = new LiveStream(stage);
  const add = (path: string, answer: (call: Call) => NonNullable<Answer['write']>) =>
    router.add(
      'GET',
      `/sandbox/${path}`,
      (call) => {
        if (!isLoopbackHost(new URL(stage.url).hostname)) throw refusal(403, 'the page is shown on loopback alone');
        return { status: 200, write: answer(call) };
      },
      { auth: 'none' },
    );

  add('', () => (request, response) => files.answerPage(request, response));
  add('page/:name', (call) => async (request, response) => {
    if (await files.answerFile(request, response, call.params.name ?? '')) return;
    response.writeHead(404);
    response.end();
  });
  add('live', (call) => {
    const asset = call.query.get('asset');
    if (asset !== null && !/^\d{1,15}$/.test(asset)) throw refusal(400, 'is no whole number', 'asset');
    const key = (call.query.get('key') ?? '').toLowerCase();
    return (request, response) => live.open(request, response, asset === null ? undefined : Number(asset), key);
  });
}
