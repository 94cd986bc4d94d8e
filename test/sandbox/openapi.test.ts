import { Ajv2020 } from 'ajv/dist/2020.js';
import { afterEach, beforeEach, describe, expect, it } from 'vitest';
import { Sandbox } from '../../src/sandbox/sandbox.ts';
import { Visitor } from './visitor.ts';

let sandbox: Sandbox;
let visitor: Visitor;

beforeEach(async () => {
  sandbox = new Sandbox({ limits: { perUser: 0, perApiKey: 0, perAddress: 0 } });
  await sandbox.start();
  visitor = await Visitor.signedIn(sandbox);
});
afterEach(() => sandbox.stop());

describe('/openapi.json', () => {
  it('names exactly the operations that the sandbox answers', async () => {
    const offered = sandbox.routes
      .map(({ method, pattern }) => `${method} ${pattern.replaceAll(/:(\w+)/g, '{$1}')}`)
      .filter((name) => !['GET /', 'GET /openapi.json'].includes(name));
    const { paths } = (await visitor.get('/openapi.json')).body;
    const named = Object.entries(paths).flatMap(([path, methods]) =>
      Object.keys(methods as object).map((method) => `${method.toUpperCase()} ${path}`),
    );
    expect(named.sort()).toEqual(offered.sort());
  });

  it('has schemas that compile and whose references lead somewhere, and unique operation ids', async () => {
    const document = (await visitor.get('/openapi.json')).body;
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    ajv.addSchema(document, 'openapi');
    for (const name of Object.keys(document.components.schemas)) {
      expect(ajv.getSchema(`openapi#/components/schemas/${name}`)).toBeTypeOf('function');
    }
    const references = [...JSON.stringify(document).matchAll(/"\$ref":"#\/components\/schemas\/(\w+)"/g)];
    for (const [, name] of references) expect(document.components.schemas).toHaveProperty(name!);
    const ids = Object.values(document.paths).flatMap((path) =>
      Object.values(path as Record<string, { operationId: string }>).map(({ operationId }) => operationId),
    );
    expect(new Set(ids).size).toBe(ids.length);
  });

  it('describes the answers that come', async () => {
    const document = (await visitor.get('/openapi.json')).body;
    const ajv = new Ajv2020({ strict: false, validateFormats: false });
    ajv.addSchema(document, 'openapi');
    const fits = (path: string, status: number, body: unknown, method = 'get') => {
      const pointer = [path.replaceAll('/', '~1').replaceAll('{', '%7B').replaceAll('}', '%7D'), method, 'responses'];
      const at = `openapi#/paths/${pointer.join('/')}/${status}/content/application~1json/schema`;
      const validate = ajv.getSchema(at)!;
      expect(validate, at).toBeTypeOf('function');
      expect(validate(body), JSON.stringify(validate.errors)).toBe(true);
    };
    fits('/oauth/token', 200, (await visitor.login()).body, 'post');
    for (const path of ['/v1/client_applications', '/v1/client_applications/current', '/v1/api_subscriptions']) {
      fits(path, 200, (await visitor.get(path)).body);
    }
    for (const path of ['/v1/permissions', '/v2/permissions']) fits(path, 200, (await visitor.get(path)).body);
  });
});
