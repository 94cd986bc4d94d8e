import { deprecationOf } from '../../contract/deprecations.ts';
import { EVENT_TYPES } from '../../contract/events.ts';
import { ADMIN_OPERATIONS, type AdminOperation } from '../admin/admin-operations.ts';
import { sentSchema } from '../events/sent-schema.ts';
import type { Router } from '../http/router.ts';
import { OPERATIONS, type Operation } from './operations.ts';
import { ref, WIRE_SCHEMAS } from './wire-schemas.ts';

/** The OpenAPI 3.1 document of what the sandbox offers, made from `contract/` alone. */
function openApiDocument(serverUrl: string) {
  const paths: Record<string, Record<string, unknown>> = {};
  for (const operation of OPERATIONS) {
    const method = operation.method.toLowerCase();
    paths[operation.path] = { ...paths[operation.path], [method]: operationObject(operation) };
  }
  for (const operation of ADMIN_OPERATIONS) {
    const path = `/sandbox/${operation.path}`;
    paths[path] = { ...paths[path], [operation.method.toLowerCase()]: adminObject(operation) };
  }
  return {
    openapi: '3.1.0',
    info: {
      title: 'Asset data service (sandbox)',
      version: '1.0.0',
      description: 'As far as it is specified. `x-source` names the section of the specification.',
    },
    servers: [{ url: serverUrl }],
    security: [{ bearer: [] }],
    paths,
    webhooks: Object.fromEntries(
      EVENT_TYPES.map((type) => [
        type,
        {
          post: {
            summary: `${type} (platform 6.3)`,
            requestBody: { content: { 'application/json': { schema: sentSchema(type) } } },
            responses: { '2XX': { description: 'The event has arrived; anything else is tried again' } },
            security: [],
          },
        },
      ]),
    ),
    components: {
      schemas: WIRE_SCHEMAS,
      securitySchemes: {
        bearer: { type: 'http', scheme: 'bearer' },
        client: {
          type: 'http',
          scheme: 'basic',
          description: 'Client id and secret (platform 5.2); or both in the form',
        },
      },
    },
  };
}

/** `/` says what this is and where things are; `/openapi.json` all of it. */
export function addOpenApiEndpoints(router: Router, serverUrl: () => string, webUrl: () => string): void {
  router.add(
    'GET',
    '/',
    () => ({
      status: 200,
      body: {
        name: 'Asset data service (sandbox)',
        what: 'The platform as far as it is specified, on this machine: nothing here is real, and its credentials are public.',
        base_url: serverUrl(),
        web_url: webUrl(),
        openapi: `${serverUrl()}/openapi.json`,
        page: `${serverUrl()}/sandbox/`,
        behind_the_scenes: `${serverUrl()}/sandbox/status`,
        sign_up: `${webUrl()}/app/id/sign_up`,
        subscribe: `${webUrl()}/app/id/subscriptions/new`,
      },
      story: 'somebody looks what this is',
    }),
    { auth: 'none' },
  );
  router.add(
    'GET',
    '/openapi.json',
    () => ({
      status: 200,
      body: openApiDocument(serverUrl()),
      story: 'the OpenAPI document is read',
    }),
    { auth: 'none' },
  );
}

/** The sandbox's own: behind the scenes, without tokens. */
function adminObject({ method, path, summary, status, body, type, query }: AdminOperation) {
  const names = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]!);
  const text = { type: 'string' };
  const members =
    body === undefined || body === 'any'
      ? {}
      : { properties: Object.fromEntries(body.map((name) => [name, {}])), additionalProperties: false };
  const isEmpty = status === 204 || status === 202;
  const content = type === undefined ? { 'application/json': { schema: { type: 'object' } } } : { [type]: {} };
  const answer = isEmpty ? {} : { content };
  return {
    summary,
    operationId: [method.toLowerCase(), 'sandbox', ...path.replaceAll(/[{}]/g, '').split('/')].join('_'),
    'x-source': 'own',
    tags: ['sandbox'],
    security: [],
    parameters: [
      ...names.map((name) => ({
        name,
        in: 'path',
        required: true,
        schema: name === 'id' ? { type: 'integer' } : text,
      })),
      ...(query ?? []).map((name) => ({ name, in: 'query', schema: text })),
    ],
    ...(body === undefined
      ? {}
      : { requestBody: { content: { 'application/json': { schema: { type: 'object', ...members } } } } }),
    responses: {
      [status]: { description: 'Done', ...answer },
      default: { description: 'Refused', content: { 'application/json': { schema: ref('Error') } } },
    },
  };
}

const PAGE = { schema: { type: 'string' } };

function operationObject(operation: Operation) {
  const deprecation = deprecationOf(operation.path.replaceAll(/\{\w+\}/g, '1'));
  return {
    summary: operation.summary,
    operationId: operationId(operation),
    'x-source': operation.source,
    ...(deprecation === undefined ? {} : { deprecated: true, 'x-sunset': deprecation.sunset }),
    ...(operation.auth === 'bearer' ? {} : { security: operation.auth === 'client' ? [{ client: [] }, {}] : [] }),
    parameters: parametersOf(operation),
    ...requestBody(operation),
    responses: {
      [operation.success.status]: successResponse(operation),
      default: { description: 'Refused', content: refusedContent(operation) },
    },
  };
}

/** Token endpoints say no in the words of RFC 6749, and like all others where no endpoint is reached. */
function refusedContent({ form, html }: Operation) {
  if (html) return { 'text/html': PAGE, 'application/json': { schema: ref('Error') } };
  const schema = form === undefined ? ref('Error') : { anyOf: [ref('OAuthError'), ref('Error')] };
  return { 'application/json': { schema } };
}

function operationId({ method, path }: Operation): string {
  const words = path.split('/').filter((word) => word !== '');
  return [method.toLowerCase(), ...words.map((word) => word.replaceAll(/[{}]/g, ''))].join('_');
}

function parametersOf({ path, query }: Operation) {
  const names = [...path.matchAll(/\{(\w+)\}/g)].map((match) => match[1]!);
  return [
    ...names.map((name) => ({
      name,
      in: 'path',
      required: true,
      schema: name === 'key' ? { type: 'string' } : { type: 'integer' },
    })),
    ...(query ?? []).map((name) => ({ name, in: 'query', schema: { type: 'string' } })),
  ];
}

function requestBody({ body, form }: Operation) {
  if (body !== undefined) {
    return { requestBody: { required: true, content: { 'application/json': { schema: ref(body) } } } };
  }
  if (form === undefined) return {};
  const properties = Object.fromEntries(form.map((name) => [name, { type: 'string' }]));
  const content = { 'application/x-www-form-urlencoded': { schema: { type: 'object', properties } } };
  return { requestBody: { required: true, content } };
}

function successResponse({ html, success: { status, schema, list } }: Operation) {
  const description =
    status === 204 ? 'Done' : status === 201 ? 'Made' : status === 302 ? 'Back to the client' : 'Found';
  if (status === 302) {
    return { description, headers: { location: { required: true, schema: { type: 'string', format: 'uri' } } } };
  }
  if (html) return { description, content: { 'text/html': PAGE } };
  if (schema === undefined) return { description };
  const one = ref(schema);
  const shown =
    list === undefined
      ? one
      : {
          type: 'object',
          properties: { [list]: { type: 'array', items: one }, pagination: ref('Pagination') },
          required: [list],
        };
  return { description, content: { 'application/json': { schema: shown } } };
}
