import type { Answer, Call } from '../http/call.ts';
import { refusal } from '../http/refusal.ts';
import type { Router } from '../http/router.ts';
import { adminBody } from './admin-body.ts';
import type { Stage } from './stage.ts';

/** The exam of a client of the API: it begins, its marks, it ends. */
export function addExamEndpoints(router: Router, stage: Stage): void {
  const add = (method: string, path: string, handle: (call: Call) => Answer) =>
    router.add(method, `/sandbox/${path}`, handle, { auth: 'none' });
  let drill: { over: boolean; steps: string[]; missed: string[] } | undefined;

  add('POST', 'exam', (call) => {
    const { provoke: field = false, sign_in: signIn = false } = adminBody(call, 'exam');
    if (typeof field !== 'boolean') throw refusal(400, 'is neither true nor false', 'provoke');
    if (typeof signIn !== 'boolean') throw refusal(400, 'is neither true nor false', 'sign_in');
    if (drill?.over === false) throw refusal(409, 'a client is taken through the drill already');
    stage.clientExam.begin();
    drill = undefined;
    if (field || signIn) {
      const taken = { over: false, steps: [] as string[], missed: [] as string[] };
      drill = taken;
      stage.later(0, async () => {
        taken.missed = await stage.provokeClient({ field, signIn }, (what) => {
          taken.steps.push(what);
        });
        taken.over = true;
      });
    }
    return { status: 204 };
  });
  add('GET', 'exam', () => ({
    status: 200,
    body: {
      running: stage.clientExam.isRunning,
      ...(drill === undefined ? {} : { drill }),
      marks: stage.clientExam.marks(),
    },
  }));
  add('DELETE', 'exam', () => {
    stage.clientExam.end();
    return { status: 204 };
  });
}
