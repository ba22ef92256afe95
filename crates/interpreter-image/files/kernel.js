// A Jupyter kernel for JavaScript and TypeScript on Node.
//
// Every cell runs as an asynchronous function whose declarations become globals, so that `await`
// and `import` work at the top and the next cell sees what this one declared.
'use strict';

const fs = require('node:fs');
const { Channel } = require('./channel.js');
const { translate } = require('./translate.js');
const vm = require('node:vm');
const util = require('node:util');
const path = require('node:path');
const { createRequire } = require('node:module');

const HERE = __dirname;
const FLUSH_BYTES = 64 * 1024;
const FLUSH_AFTER_MS = 20;

const connection = JSON.parse(fs.readFileSync(process.argv[2], 'utf8'));
const publisher = new Channel(connection, connection.iopub_port, 'PUB');

let count = 0;
let current = {};
let interrupt = null;
let queue = Promise.resolve();

function publish(type, content, parent = current) {
  publisher.publish(type, content, parent);
}

// What is printed in quick succession is gathered; code that never pauses still prints as it goes.
const printed = { name: '', text: '', flushed: 0, timer: null };

function flush() {
  clearImmediate(printed.timer);
  printed.timer = null;
  if (!printed.text) return;
  publish('stream', { name: printed.name, text: printed.text });
  printed.text = '';
  printed.flushed = Date.now();
}

function print(name, chunk, encoding, done) {
  const text = typeof chunk === 'string' ? chunk : Buffer.from(chunk).toString('utf8');
  if (printed.name !== name) flush();
  printed.name = name;
  printed.text += text;
  if (printed.text.length > FLUSH_BYTES || Date.now() - printed.flushed > FLUSH_AFTER_MS) flush();
  else printed.timer ??= setImmediate(flush);
  const then = typeof encoding === 'function' ? encoding : done;
  if (then) process.nextTick(then);
  return true;
}

process.stdout.write = (...given) => print('stdout', ...given);
process.stderr.write = (...given) => print('stderr', ...given);

class Interrupted extends Error {
  name = 'KeyboardInterrupt';
}

process.on('SIGINT', () => interrupt?.(new Interrupted('the execution was interrupted')));
for (const event of ['uncaughtException', 'unhandledRejection']) {
  process.on(event, (error) => process.stderr.write(`Uncaught ${util.inspect(error)}\n`));
}

globalThis.require = createRequire(path.join(process.cwd(), '/'));
globalThis.__dirname = process.cwd();

/** Makes names ordinary globals; some that Node defines cannot be assigned to as they are. */
function declare(names) {
  for (const name of names) {
    const known = Object.getOwnPropertyDescriptor(globalThis, name);
    if (known?.writable) continue;
    const value = { value: undefined, writable: true, configurable: true, enumerable: true };
    Object.defineProperty(globalThis, name, value);
  }
}

async function evaluate(code, number) {
  const { source, bound } = translate(code);
  declare(bound);
  const script = new vm.Script(source, {
    filename: `[${number}]`,
    importModuleDynamically: vm.constants.USE_MAIN_CONTEXT_DEFAULT_LOADER,
  });
  const interrupted = new Promise((_, reject) => (interrupt = reject));
  // Nobody else may ever wait for it.
  interrupted.catch(() => {});
  try {
    return await Promise.race([script.runInThisContext({ breakOnSigint: true }), interrupted]);
  } catch (error) {
    if (error?.code !== 'ERR_SCRIPT_EXECUTION_INTERRUPTED') throw error;
    throw new Interrupted('the execution was interrupted');
  } finally {
    interrupt = null;
  }
}

function failure(error) {
  const isError = util.types.isNativeError(error) || error instanceof Error;
  const text = isError ? String(error.stack ?? error) : `Uncaught ${util.inspect(error)}`;
  const all = text.split('\n');
  // What lies below a cell's own frames is this kernel.
  const end = all.findIndex((line) => line.includes('(node:vm:') || line.includes(HERE));
  const lines = end < 0 ? all : all.slice(0, end);
  return {
    status: 'error',
    ename: isError ? String(error.name) : 'Error',
    evalue: isError ? String(error.message) : util.inspect(error),
    traceback: lines.map((line) => line + '\n'),
  };
}

async function execute({ code, silent, store_history: counted = true }) {
  if (!silent && counted) count += 1;
  const execution_count = count;
  if (!silent) publish('execute_input', { code, execution_count });
  let reply = { status: 'ok', execution_count, payload: [], user_expressions: {} };
  try {
    const shown = await evaluate(code, execution_count);
    flush();
    if (!silent && shown && shown.value !== undefined) {
      const data = { 'text/plain': util.inspect(shown.value, { depth: 4 }) };
      publish('execute_result', { execution_count, data, metadata: {} });
    }
  } catch (error) {
    flush();
    reply = { ...failure(error), execution_count };
    const { ename, evalue, traceback } = reply;
    if (!silent) publish('error', { ename, evalue, traceback });
  }
  return reply;
}

const INFORMATION = {
  status: 'ok',
  protocol_version: '5.3',
  implementation: 'atoll-javascript',
  implementation_version: '1',
  language_info: { name: 'javascript', version: process.version, file_extension: '.js' },
  banner: `Node ${process.version}`,
};

async function answer({ header, content }) {
  switch (header.msg_type) {
    case 'kernel_info_request':
      return INFORMATION;
    case 'execute_request':
      return execute(content);
    case 'interrupt_request':
      process.emit('SIGINT');
      return { status: 'ok' };
    case 'shutdown_request':
      setTimeout(() => process.exit(0), 50);
      return { status: 'ok', restart: Boolean(content.restart) };
    default:
      return { status: 'error', ename: 'NotSupported', evalue: header.msg_type, traceback: [] };
  }
}

async function handle(message, reply) {
  current = message.header;
  publish('status', { execution_state: 'busy' });
  const content = await answer(message);
  flush();
  reply(message.header.msg_type.replace('_request', '_reply'), content, message.header);
  publish('status', { execution_state: 'idle' }, message.header);
}

function inTurn(message, reply) {
  queue = queue.then(() => handle(message, reply));
}

async function atOnce(message, reply) {
  reply(message.header.msg_type.replace('_request', '_reply'), await answer(message), message.header);
}

new Channel(connection, connection.shell_port, 'ROUTER', inTurn);
new Channel(connection, connection.control_port, 'ROUTER', atOnce);
new Channel(connection, connection.stdin_port, 'ROUTER', () => {});
