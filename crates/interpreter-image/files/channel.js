// One socket of a kernel: ZMTP 3.0 without encryption, carrying signed Jupyter messages.
'use strict';

const { createHmac, randomUUID, timingSafeEqual } = require('node:crypto');
const net = require('node:net');

const MARK = '<IDS|MSG>';
const GREETING_BYTES = 64;
const MESSAGE_BYTES_MAX = 64 << 20;
const [MORE, LONG, COMMAND] = [1, 2, 4];
const session = randomUUID();

function greeting() {
  const bytes = Buffer.alloc(GREETING_BYTES);
  bytes[0] = 0xff;
  bytes[8] = 1;
  bytes[9] = 0x7f;
  bytes[10] = 3;
  bytes.write('NULL', 12);
  return bytes;
}

function frame(flags, body) {
  if (body.length < 256) return Buffer.concat([Buffer.from([flags, body.length]), body]);
  const head = Buffer.alloc(9);
  head[0] = flags | LONG;
  head.writeBigUInt64BE(BigInt(body.length), 1);
  return Buffer.concat([head, body]);
}

function ready(kind) {
  const size = Buffer.alloc(4);
  size.writeUInt32BE(kind.length);
  const body = [Buffer.from('\x05READY\x0bSocket-Type'), size, Buffer.from(kind)];
  return frame(COMMAND, Buffer.concat(body));
}

class Channel {
  #key;
  #onMessage;
  #kind;
  #peers = new Set();

  constructor({ ip, key }, port, kind, onMessage = () => {}) {
    [this.#key, this.#kind, this.#onMessage] = [key, kind, onMessage];
    net.createServer((socket) => this.#meet(socket)).listen(port, ip);
  }

  /** Sends to everybody who is connected and ready. */
  publish(type, content, parent) {
    const bytes = this.#encode(type, content, parent, [Buffer.from(type)]);
    for (const peer of this.#peers) peer.write(bytes);
  }

  #sign(parts) {
    const hmac = createHmac('sha256', this.#key);
    for (const part of parts) hmac.update(part);
    return hmac.digest('hex');
  }

  #encode(type, content, parent, first = []) {
    const header = {
      msg_id: randomUUID(),
      session,
      username: 'kernel',
      date: new Date().toISOString(),
      msg_type: type,
      version: '5.3',
    };
    const parts = [header, parent, {}, content].map((part) => Buffer.from(JSON.stringify(part)));
    const all = [...first, Buffer.from(MARK), Buffer.from(this.#sign(parts)), ...parts];
    return Buffer.concat(all.map((part, at) => frame(at + 1 < all.length ? MORE : 0, part)));
  }

  #decode(parts) {
    const mark = parts.findIndex((part) => part.equals(Buffer.from(MARK)));
    const [signature, ...rest] = parts.slice(mark + 1);
    if (mark < 0 || rest.length < 4) return null;
    const right = Buffer.from(this.#sign(rest.slice(0, 4)));
    if (right.length !== signature.length || !timingSafeEqual(right, signature)) return null;
    const [header, , , content] = rest.slice(0, 4).map((part) => JSON.parse(part));
    return { header, content };
  }

  #meet(socket) {
    let [bytes, greeted, parts] = [Buffer.alloc(0), false, []];
    const reply = (type, content, parent) => socket.write(this.#encode(type, content, parent));
    socket.setNoDelay(true);
    socket.on('error', () => socket.destroy());
    socket.on('close', () => this.#peers.delete(socket));
    socket.write(greeting());
    socket.write(ready(this.#kind));
    socket.on('data', (chunk) => {
      bytes = Buffer.concat([bytes, chunk]);
      if (!greeted) {
        if (bytes.length < GREETING_BYTES) return;
        greeted = true;
        bytes = bytes.subarray(GREETING_BYTES);
        this.#peers.add(socket);
      }
      for (;;) {
        const isLong = (bytes[0] & LONG) !== 0;
        const start = isLong ? 9 : 2;
        if (bytes.length < start) return;
        const size = isLong ? Number(bytes.readBigUInt64BE(1)) : bytes[1];
        if (size > MESSAGE_BYTES_MAX) return void socket.destroy();
        if (bytes.length < start + size) return;
        const flags = bytes[0];
        const body = bytes.subarray(start, start + size);
        bytes = bytes.subarray(start + size);
        if (flags & COMMAND) continue;
        parts.push(body);
        if (flags & MORE) continue;
        const message = this.#decode(parts);
        parts = [];
        if (message) this.#onMessage(message, reply);
      }
    });
  }
}

module.exports = { Channel };
