/* Marks ops from C++: torch calls this observer (at::RecordFunction) where an op begins and ends.

   Unlike a dispatch mode it changes nothing in what runs. It finds out where an op is: layer, line
   of code, and in backward the forward op whose node runs. A call like one before is recognised by a
   hash; only for a new one is Python asked for its text (observed.py, where the words are explained).

   Compiled against the headers of one version of torch, with -DNDEBUG as torch was: the layout of
   RecordFunction is not stable. observers.py does that, and tests the result.

   What is of a thread is touched by that thread alone, save its nodes. Tables of the whole session
   are touched under the GIL. */

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <ATen/Parallel.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <ATen/record_function.h>
#include <c10/core/AutogradState.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/graph_task.h>
#ifdef OBSERVER_HAS_GROUPS
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>
#endif
#if __has_include(<kineto/ClientInterface.h>)
#define OBSERVER_HAS_KINETO
#include <kineto/ClientInterface.h>
#endif
#include <dlfcn.h>
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <typeinfo>
#include <unordered_map>
#include <vector>
#if PY_VERSION_HEX < 0x030E0000
#define OBSERVER_HAS_FRAMES // as far as it was looked at how they lie in memory
#define Py_BUILD_CORE
#include <internal/pycore_frame.h>
#undef Py_BUILD_CORE
#endif

using c10::DispatchKey;
using c10::DispatchKeySet;
using std::int64_t;
using std::uint32_t;
using std::uint64_t;

namespace {

constexpr int64_t kNoNumber = -1;
constexpr uint32_t kUnknown = 0; // no forward op, no place, no scope of its own
constexpr int64_t kNodesOfAnOp = 64;
constexpr size_t kCallsAtMost = 200000;
constexpr size_t kDeadThreadsAtMost = 64;
constexpr size_t kRangesAtMost = 1000;

inline uint64_t mix(uint64_t hash, uint64_t value) {
  hash ^= value + 0x9E3779B97F4A7C15ull + (hash << 6) + (hash >> 2);
  hash *= 0xff51afd7ed558ccdull;
  return hash ^ (hash >> 32);
}

/* A table in one piece of memory, which is touched once to find a key. Values move as it grows. */
template <class V> class Table {
 public:
  V* find(uint64_t key) {
    Slot* slot = slots_.empty() ? nullptr : slot_of(key);
    return slot && slot->key ? &slot->value : nullptr;
  }
  V& operator[](uint64_t key) {
    if (4 * count_ >= 3 * slots_.size()) grow();
    Slot* slot = slot_of(key);
    count_ += !slot->key;
    slot->key = key + 1;
    return slot->value;
  }
  size_t size() const { return count_; }
  void clear() { *this = Table(); }

 private:
  struct Slot { // the key is one more; 0: none
    uint64_t key = 0;
    V value{};
  };
  Slot* slot_of(uint64_t key) {
    size_t mask = slots_.size() - 1, at = (size_t)(key * 0x9E3779B97F4A7C15ull >> 32) & mask;
    while (slots_[at].key && slots_[at].key != key + 1) at = (at + 1) & mask;
    return &slots_[at];
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : 2 * slots_.size());
    old.swap(slots_);
    for (Slot& each : old)
      if (each.key) *slot_of(each.key - 1) = std::move(each);
  }
  std::vector<Slot> slots_;
  size_t count_ = 0;
};

// -- Python ---------------------------------------------------------------------------------------

/* Holds the GIL, and the error that the program may be about to raise. */
class Python {
 public:
  Python() : state_(PyGILState_Ensure()) { PyErr_Fetch(&kind_, &error_, &traceback_); }
  ~Python() {
    if (PyErr_Occurred()) PyErr_WriteUnraisable(nullptr);
    PyErr_Restore(kind_, error_, traceback_);
    PyGILState_Release(state_);
  }
  Python(const Python&) = delete;

 private:
  PyGILState_STATE state_;
  PyObject *kind_, *error_, *traceback_;
};

/* An object that is held; to be touched under the GIL. */
class Held {
 public:
  Held() = default;
  explicit Held(PyObject* taken) : object_(taken) {}
  Held(const Held& other) : object_(Py_XNewRef(other.object_)) {}
  Held(Held&& other) noexcept : object_(other.object_) { other.object_ = nullptr; }
  Held& operator=(Held other) {
    std::swap(object_, other.object_);
    return *this;
  }
  ~Held() { Py_XDECREF(object_); }
  PyObject* get() const { return object_; }
  explicit operator bool() const { return object_ != nullptr; }

 private:
  PyObject* object_ = nullptr;
};

// -- NVTX -----------------------------------------------------------------------------------------

/* What NVTX 3 defines, as far as it is used: its header would be one more thing to find. */
struct Attributes {
  uint16_t version = 3, size = 48;
  uint32_t category = 0;
  int32_t color_type = 1;
  uint32_t color = 0xFF0000FF;
  int32_t payload_type = 2; // int64
  int32_t reserved = 0;
  int64_t payload = 0;
  int32_t message_type = 0; // 1: a text that is copied; 3: a registered one
  const void* message = nullptr;
};
static_assert(sizeof(Attributes) == 48, "the structure of NVTX");

struct Nvtx {
  void* domain = nullptr;
  int (*push)(void*, const Attributes*) = nullptr;
  int (*pop)(void*) = nullptr;
  void (*mark)(void*, const Attributes*) = nullptr;
  void* (*register_text)(void*, const char*) = nullptr;
};
Nvtx g_nvtx;

constexpr int kModules = 7;
void* g_functions[kModules][32];
void** g_pointers[kModules][32];

int give_table(uint32_t module, void**** table, uint32_t* size) {
  static const uint32_t sizes[kModules] = {0, 16, 9, 15, 9, 16, 7};
  if (module < 1 || module >= kModules) return 0;
  for (int at = 0; at < 32; at++) g_pointers[module][at] = &g_functions[module][at];
  *table = g_pointers[module];
  if (size) *size = sizes[module];
  return 1;
}
void ignore_version(uint32_t) {}
const void* give_export(uint32_t id) {
  static const struct { size_t size; int (*table)(uint32_t, void****, uint32_t*); } callbacks = {
      sizeof callbacks, give_table};
  static const struct { size_t size; uint32_t version, reserved; void (*set)(uint32_t); } version = {
      sizeof version, 3, 0, ignore_version};
  return id == 1 ? (const void*)&callbacks : id == 3 ? (const void*)&version : nullptr;
}

/* Return whether a profiler takes ranges: 1; 0: none is attached; -1: one that refuses. */
int find_listener(const char* domain) {
  if (g_nvtx.domain) return 1;
  const char* path = getenv("NVTX_INJECTION64_PATH");
  if (!path || !*path) return 0;
  void* library = dlopen(path, RTLD_LAZY);
  auto initialize = library ? (int (*)(const void* (*)(uint32_t)))dlsym(library, "InitializeInjectionNvtx2")
                            : nullptr;
  if (!initialize || !initialize(give_export)) return -1;
  void** found = g_functions[5]; // the module of domains
  auto create = (void* (*)(const char*))found[12];
  g_nvtx.mark = (void (*)(void*, const Attributes*))found[1];
  g_nvtx.push = (int (*)(void*, const Attributes*))found[4];
  g_nvtx.pop = (int (*)(void*))found[5];
  g_nvtx.register_text = (void* (*)(void*, const char*))found[10];
  if (!create || !g_nvtx.push || !g_nvtx.pop || !g_nvtx.register_text) return -1;
  g_nvtx.domain = create(domain);
  return g_nvtx.domain ? 1 : -1;
}

/* A text as it is pushed: registered, by its number, or copied each time. */
struct Message {
  bool is_set = false;
  uint64_t registered = 0;
  std::string text;
};

// -- what is remembered of a thread -----------------------------------------------------------------

/* The last 2^18 nodes that a thread made. Pages that nobody writes take no memory. */
class Nodes {
 public:
  static constexpr int64_t kSize = 1 << 18;
  explicit Nodes(uint64_t session)
      : session(session), slots_((Slot*)calloc(kSize, sizeof(Slot))) {}
  ~Nodes() { free(slots_); }
  Nodes(const Nodes&) = delete;

  void set(int64_t number, uint32_t forward, int64_t payload) {
    if (!slots_) return;
    Slot& slot = slots_[number & (kSize - 1)];
    slot.number.store(0, std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_release);
    slot.forward.store(forward, std::memory_order_relaxed);
    slot.payload.store(payload, std::memory_order_relaxed);
    slot.number.store(number + 1, std::memory_order_release);
  }
  /* Any thread may ask. */
  bool find(int64_t number, uint32_t* forward, int64_t* payload) const {
    if (!slots_ || number < 0) return false;
    const Slot& slot = slots_[number & (kSize - 1)];
    if (slot.number.load(std::memory_order_acquire) != number + 1) return false;
    *forward = slot.forward.load(std::memory_order_relaxed);
    *payload = slot.payload.load(std::memory_order_relaxed);
    std::atomic_thread_fence(std::memory_order_acquire);
    return slot.number.load(std::memory_order_relaxed) == number + 1;
  }
  const uint64_t session;

 private:
  struct Slot { // the number is one more than the node's; 0: none
    std::atomic<int64_t> number, payload;
    std::atomic<uint32_t> forward;
  };
  Slot* slots_;
};

/* One op at one place, or in the nodes of one forward op. */
struct Site {
  uint32_t number = 0;  // what Python knows it by
  uint32_t forward = 0; // what nodes made here belong to
  uint64_t varying = 0; // arguments whose values are not recorded
  int8_t nodes = -1;    // how many an op made the last time; -1: not known
};

struct OpInfo {
  uint64_t number; // no other one has it
  std::string name, overload;
  size_t arguments = SIZE_MAX; // how many it has
  bool is_composite = false, is_collective = false;
  DispatchKeySet autocast; // keys for which it casts its arguments, and calls itself
  bool makes_nodes = true; // as far as is known
};

struct Node { // whose work is done
  uint32_t forward = kUnknown;
  int64_t payload = kNoNumber;
  bool accumulates = false;
};

struct Open { // an op, or a node, that runs
  const at::RecordFunction* record;
  bool is_marked = false, is_leaf = false, is_node = false;
  bool was_in_node = false;
  Node outer;
  int64_t first = kNoNumber; // of the nodes that it makes
  int64_t payload = kNoNumber;
  uint32_t forward = kUnknown;
  uint64_t site = 0; // its key, if it may make nodes
  OpInfo* op = nullptr;
  bool fills = false; // its parts come first
};

/* Ranges in the trace of a torch.profiler; they end in the other order. */
class Records {
 public:
  Records() = default;
  Records(Records&&) = default;
  Records& operator=(Records&&) = default;
  ~Records() { while (!open_.empty()) open_.pop_back(); }
  void open(const std::string& text) {
    auto callbacks = at::getStepCallbacksUnlessEmpty(at::RecordScope::FUNCTION);
    if (!callbacks) return;
    open_.push_back(std::make_unique<at::RecordFunction>(std::move(*callbacks)));
    open_.back()->before(text);
  }

 private:
  std::vector<std::unique_ptr<at::RecordFunction>> open_;
};

struct Scope { // a layer, an optimizer's step, a text of the user's own, that is open
  uint64_t token;
  void* activation; // of the wrapper that calls a module
  uint32_t place; // from where it is called
  uint32_t ranges; // that were opened
  uint32_t outer;
  bool outer_is_optimizer, was_in_node;
  int outer_task;
  Node outer_node;
  Records records;
};

struct Session;
struct Thread {
  uint64_t state = 0, session = 0, epoch = 0, activation = 0;
  uint64_t id = at::RecordFunction::currentThreadId();
  int64_t payload_base = 0;
  std::vector<Open> open;
  std::vector<Scope> scopes;
  int leaf = 0;
  bool busy = false; // Python code of ours runs on it
  bool unsure = false; // whether what it did when ops began to be marked was a node's work
  uint32_t scope = kUnknown;
  bool scope_is_optimizer = false;
  int task = -1;
  bool in_node = false;
  Node node, last; // what runs; what ran last
  int64_t next_number = kNoNumber; // of a node, when the last op ended
  int64_t function = kNoNumber; // the node of the autograd function whose forward runs
  Table<std::unique_ptr<OpInfo>> ops; // by the addresses of their names
  Table<int> kinds; // of codes: those of the session that were met here
  Table<uint32_t> places;
  Table<Site> sites;
  Table<Message> calls; // what is pushed for one call at a site
  Table<uint32_t> recomputed; // scopes of functions that are run again, by what their nodes belong to
  std::shared_ptr<Nodes> nodes, home;
  uint64_t home_id = 0;
  int64_t home_base = 0;
  Message copied; // the last text that is not remembered
  std::mutex rows_mutex;
  std::vector<std::pair<uint64_t, uint32_t>> rows;
  uint64_t row_count = 0;
  std::vector<std::pair<const at::RecordFunction*, uint64_t>> made; // of ops, with rows before them

  ~Thread();
};

struct Known { // of a thread that made nodes, dead or alive
  std::shared_ptr<Nodes> nodes;
  int64_t payload_base;
};
std::mutex& g_mutex = *new std::mutex(); // over what follows; never held while Python is asked
auto& g_threads = *new std::unordered_map<uint64_t, Known>();
auto& g_dead = *new std::deque<uint64_t>();
auto& g_rows = *new std::vector<std::pair<uint64_t, uint32_t>>(); // of threads that ended
auto& g_alive = *new std::vector<Thread*>();

extern thread_local Thread* t_thread;
Thread::~Thread() {
  t_thread = nullptr;
  std::lock_guard<std::mutex> lock(g_mutex);
  g_alive.erase(std::remove(g_alive.begin(), g_alive.end(), this), g_alive.end());
  g_rows.insert(g_rows.end(), rows.begin(), rows.end());
  g_dead.push_back(id); // graphs outlive threads
  if (g_dead.size() > kDeadThreadsAtMost) {
    g_threads.erase(g_dead.front());
    g_dead.pop_front();
  }
}

// -- the session ------------------------------------------------------------------------------------

enum Flags : uint32_t { kShapes = 1, kSource = 2, kRows = 4 };

/* A text that Python was asked for, as a range and as a record. */
struct Texts {
  Message range, record;
};

struct ScopeInfo {
  bool is_optimizer;
  Texts texts;
};

struct ModuleInfo { // of a module that was called
  Held layer; // as Python knows it by the module's id, as long as it has this one
  uint32_t forward, recompute; // scopes
};

struct Record { // what a range of torch.profiler is: a scope; or, with a message, in the same
  uint32_t scope = kUnknown;
  Message message;
};

/* From start to stop. What Python asks for is held until the next one begins. */
struct Session {
  uint32_t flags = 0;
  bool is_native = false;
  Held asked; // the object whose methods are called
  Held push, pop, domain; // the sink in Python
  std::deque<ScopeInfo> scopes;
  Table<uint32_t> places;
  Table<Texts> lines;
  std::unordered_map<PyCodeObject*, int> codes;
  std::unordered_map<std::string, Record> records;
  Table<ModuleInfo> modules; // by their ids
  Held layers; // of modules, by their ids
  bool follows = true; // modules; else Python does
  Held engine_run;
};
std::atomic<bool> g_on{false};
std::atomic<uint64_t> g_session{0}, g_epoch{0}, g_activation{0};
std::atomic<uint64_t> g_state{0}; // changes with any of them
std::atomic<int64_t> g_numbers{0};
Session& g = *new Session(); // as all of these, never destroyed: threads may outlive the end
at::CallbackHandle g_handle = 0;
bool g_registered = false, g_with_ids = false;

void pop_range();

thread_local Thread* t_thread = nullptr;

Thread& find_thread() {
  static thread_local std::unique_ptr<Thread> found;
  if (!found) {
    found = std::make_unique<Thread>();
    std::lock_guard<std::mutex> lock(g_mutex);
    g_alive.push_back(found.get());
  }
  Thread& s = *(t_thread = found.get());
  s.state = g_state.load(std::memory_order_acquire);
  uint64_t session = g_session.load(std::memory_order_relaxed);
  uint64_t epoch = g_epoch.load(std::memory_order_relaxed);
  if (s.session != session) {
    s.session = session;
    s.payload_base = g_numbers.fetch_add(1) << 40;
    s.nodes = std::make_shared<Nodes>(session);
    s.home = nullptr;
    s.home_id = 0;
    if (g.is_native) { // of an annotation that ended meanwhile
      for (const Open& each : s.open)
        if (each.is_marked) pop_range();
      for (const Scope& each : s.scopes)
        for (uint32_t range = 0; range < each.ranges; range++) pop_range();
    }
    s.open.clear();
    s.scopes.clear();
    s.leaf = 0;
    s.scope = kUnknown;
    s.scope_is_optimizer = s.in_node = false;
    s.task = -1;
    s.node = s.last = Node{};
    s.next_number = s.function = kNoNumber;
    s.rows.clear();
    s.made.clear();
    s.epoch = epoch - 1;
    std::lock_guard<std::mutex> lock(g_mutex);
    g_threads[s.id] = Known{s.nodes, s.payload_base};
  }
  if (s.epoch != epoch) { // all is forgotten
    s.epoch = epoch;
    s.kinds.clear();
    s.places.clear();
    s.sites.clear();
    s.calls.clear();
    s.recomputed.clear();
  }
  uint64_t activation = g_activation.load(std::memory_order_relaxed);
  if (s.activation != activation) { // what it did meanwhile was not seen
    s.activation = activation;
    s.next_number = s.function = kNoNumber;
    s.unsure = torch::autograd::get_current_graph_task_id() != -1;
  }
  return s;
}

inline Thread& this_thread() {
  Thread* s = t_thread;
  return s && s->state == g_state.load(std::memory_order_relaxed) ? *s : find_thread();
}

void change_state(std::atomic<uint64_t>& what) {
  what++;
  g_state.fetch_add(1, std::memory_order_release);
}

/* Call a method of the object that is asked; NULL, and nothing raised, if it failed. */
template <class... A> Held ask(const char* method, const char* format, A... args) {
  if (!g.asked) return Held();
  PyObject* result = PyObject_CallMethod(g.asked.get(), method, format, args...);
  if (!result) PyErr_WriteUnraisable(g.asked.get());
  return Held(result);
}
uint32_t as_number(const Held& found, uint32_t otherwise = kUnknown) {
  if (!found) return otherwise;
  unsigned long value = PyLong_AsUnsignedLong(found.get());
  if (PyErr_Occurred()) {
    PyErr_Clear();
    return otherwise;
  }
  return (uint32_t)value;
}

/* Make a message of what Python has for it: the number of a registered text, or a text. */
void take_message(Message* message, PyObject* given) {
  message->is_set = given && given != Py_None;
  message->registered = 0;
  message->text.clear();
  if (!message->is_set) return;
  if (PyLong_Check(given)) {
    message->registered = PyLong_AsUnsignedLongLong(given);
  } else if (const char* text = PyUnicode_AsUTF8(given)) {
    message->text = text;
  } else {
    PyErr_Clear();
  }
}

void push_message(const Message& message, int64_t payload) {
  if (g.is_native) {
    Attributes attributes;
    attributes.payload = payload;
    attributes.message_type = message.registered ? 3 : 1;
    attributes.message = message.registered ? (const void*)message.registered : message.text.c_str();
    g_nvtx.push(g_nvtx.domain, &attributes);
    return;
  }
  Python python;
  if (!g.push) return;
  if (message.registered)
    Held(PyObject_CallFunction(g.push.get(), "KL", (unsigned long long)message.registered, (long long)payload));
  else
    Held(PyObject_CallFunction(g.push.get(), "sL", message.text.c_str(), (long long)payload));
}
void pop_range() {
  if (g.is_native) {
    g_nvtx.pop(g_nvtx.domain);
    return;
  }
  Python python;
  if (g.pop) Held(PyObject_CallFunctionObjArgs(g.pop.get(), g.domain.get(), nullptr));
}

// -- the user's line ----------------------------------------------------------------------------------

enum Kind { kNobodys, kLibrarys, kOwn, kModuleCall, kCompiled, kCheckpoint };

int kind_of(PyCodeObject* code, PyFrameObject* frame) {
  auto found = g.codes.find(code);
  if (found != g.codes.end()) return found->second;
  if (g.codes.size() > 200000) {
    for (auto& each : g.codes) Py_DECREF(each.first);
    g.codes.clear();
    change_state(g_epoch); // what threads know of them
  }
  int kind = (int)as_number(ask("classify", "(O)", (PyObject*)frame), kNobodys);
  Py_INCREF(code); // its address is a key
  g.codes[code] = kind;
  return kind;
}

/* Walks from a frame outwards. */
class Walk {
 public:
  explicit Walk(PyFrameObject* frame) : frame_((PyFrameObject*)Py_XNewRef(frame)) { look(); }
  ~Walk() { Py_XDECREF(frame_); }
  Walk(const Walk&) = delete;
  PyFrameObject* frame() const { return frame_; }
  PyCodeObject* code() const { return code_; }
  void next() {
    PyFrameObject* outer = PyFrame_GetBack(frame_);
    Py_DECREF(frame_);
    frame_ = outer;
    look();
  }

 private:
  void look() {
    code_ = frame_ ? PyFrame_GetCode(frame_) : nullptr;
    Py_XDECREF(code_); // the frame holds it
  }
  PyFrameObject* frame_;
  PyCodeObject* code_ = nullptr;
};

/* Return the frame that runs, or one further out, as an object. */
Held frame_object(int skipped) {
  Held frame(Py_XNewRef((PyObject*)PyEval_GetFrame()));
  while (frame && skipped--) frame = Held((PyObject*)PyFrame_GetBack((PyFrameObject*)frame.get()));
  return frame;
}

#ifdef OBSERVER_HAS_FRAMES
using Frame = _PyInterpreterFrame;
#if PY_VERSION_HEX >= 0x030D0000
Frame* frame_of(PyThreadState* state) { return state->current_frame; }
void* code_of(const Frame* frame) { return frame->f_executable; }
void* instruction_of(const Frame* frame) { return frame->instr_ptr; }
#else
Frame* frame_of(PyThreadState* state) { return state->cframe->current_frame; }
void* code_of(const Frame* frame) { return frame->f_code; }
void* instruction_of(const Frame* frame) { return frame->prev_instr; }
#endif

/* Return the frame that runs, or one further out. */
Frame* frame_of(PyThreadState* state, int skipped) {
  Frame* frame = frame_of(state);
  while (frame && (_PyFrame_IsIncomplete(frame) || skipped--)) frame = frame->previous;
  return frame;
}
/* Return what tells a call of a function from all others that run, where only that is asked. */
void* activation_of(PyFrameObject* frame) { return ((_frame*)frame)->f_frame; }
void* activation_of(int skipped) { return frame_of(PyThreadState_Get(), skipped); }
#else
void* activation_of(PyFrameObject* frame) { return frame; }
void* activation_of(int skipped) { return frame_object(skipped).get(); }
#endif

/* Return from where a call is made, out from a frame to the call of a module, or to the own code. */
uint32_t place_from(PyFrameObject* start, const Thread& s) {
  uint64_t hash = 7;
  bool found_any = false;
  uint32_t outer = kUnknown;
  bool stop = false;
  for (Walk walk(start); walk.frame() && !stop; walk.next()) {
    int kind = kind_of(walk.code(), walk.frame());
    if (kind == kLibrarys || kind == kOwn) {
      hash = mix(mix(hash, (uint64_t)walk.code()), (uint64_t)PyFrame_GetLasti(walk.frame()));
      found_any = true;
      stop = kind == kOwn;
    } else if (kind == kCompiled) { // its lines are lost, or not
      return as_number(ask("place", "(O)", (PyObject*)start));
    } else if (kind == kModuleCall) {
      for (size_t at = s.scopes.size(); at-- && !stop;)
        if (s.scopes[at].activation == activation_of(walk.frame())) {
          outer = s.scopes[at].place;
          stop = true;
        }
    }
    if (stop) break;
  }
  if (!found_any) return outer;
  hash = mix(hash, outer);
  if (const uint32_t* found = g.places.find(hash)) return *found;
  uint32_t place = as_number(ask("place", "(O)", (PyObject*)start));
  g.places[hash] = place;
  return place;
}

#ifdef OBSERVER_HAS_FRAMES
/* Return what the place of a call is known by on this thread; 0: it has to be looked for.

   A thread's own frames stay as they are while it is in an op, whoever has the GIL; and the codes
   that are known are held. To take the GIL for every op, and to have Python make an object of every
   frame, would cost more than all the rest. */
uint64_t key_of_place(PyThreadState* state, Thread& s, int skipped) {
  uint64_t key = 7;
  for (Frame* frame = frame_of(state, skipped); frame; frame = frame->previous) {
    if (_PyFrame_IsIncomplete(frame)) continue;
    const int* kind = s.kinds.find((uint64_t)code_of(frame));
    if (!kind || *kind == kCompiled) return 0;
    if (*kind == kLibrarys || *kind == kOwn) key = mix(key, (uint64_t)instruction_of(frame));
    if (*kind == kOwn) return key;
    if (*kind != kModuleCall) continue;
    for (size_t at = s.scopes.size(); at--;)
      if (s.scopes[at].activation == frame) return mix(mix(key, 3), s.scopes[at].place);
  }
  return key;
}

/* Take over what the session knows of the codes around this call; under the GIL. */
void learn_kinds(PyThreadState* state, Thread& s, int skipped) {
  for (Frame* frame = frame_of(state, skipped); frame; frame = frame->previous) {
    if (_PyFrame_IsIncomplete(frame)) continue;
    auto found = g.codes.find((PyCodeObject*)code_of(frame));
    if (found == g.codes.end()) return;
    s.kinds[(uint64_t)code_of(frame)] = found->second;
  }
}
#else
uint64_t key_of_place(PyThreadState*, Thread&, int) { return 0; }
void learn_kinds(PyThreadState*, Thread&, int) {}
#endif

/* Return the place of a call by the frame that runs, or by one further out. */
uint32_t place_of_call(Thread& s, int skipped = 0) {
  PyThreadState* state = g.flags & kSource ? PyGILState_GetThisThreadState() : nullptr;
  if (!state) return kUnknown;
  uint64_t key = key_of_place(state, s, skipped);
  if (const uint32_t* found = key ? s.places.find(key) : nullptr) return *found;
  Python python;
  bool was_busy = s.busy;
  s.busy = true;
  uint64_t epoch = g_epoch.load();
  Held start = frame_object(skipped);
  uint32_t place = place_from((PyFrameObject*)start.get(), s);
  s.busy = was_busy;
  if (epoch != g_epoch.load()) return place;
  learn_kinds(state, s, skipped);
  if ((key = key_of_place(state, s, skipped)) != 0) {
    if (s.places.size() > kCallsAtMost) s.places.clear();
    s.places[key] = place;
  }
  return place;
}

/* Return whether this thread runs the forward of an autograd function written in Python. For it, and
   for the views that it makes of what that returned, autograd turns forward-mode derivatives off;
   otherwise only inference does. */
bool is_in_function() {
  const auto& state = c10::AutogradState::get_tls_state();
  return !state.get_fw_grad_mode() && !state.get_inference_mode();
}

/* Return whether code that a node runs, with gradients, is a function that is run again. */
bool is_recompute(Thread& s) {
  if (!PyGILState_GetThisThreadState()) return false;
  Python python;
  s.busy = true;
  bool found = false;
  for (Walk walk(PyEval_GetFrame()); walk.frame() && !found; walk.next()) {
    if ((PyObject*)walk.code() == g.engine_run.get()) break;
    found = kind_of(walk.code(), walk.frame()) == kCheckpoint;
  }
  s.busy = false;
  return found;
}

// -- ops ----------------------------------------------------------------------------------------------

/* Ops that make no node, whatever they are called with. Of others that is learned; to learn it is to
   be wrong once. */
const char* const kWithoutNodes[] = {
    "_local_scalar_dense", "all", "allclose", "any", "argmax", "argmin", "argsort", "bucketize",
    "count_nonzero", "detach", "empty_like", "eq", "equal", "full_like", "ge", "gt", "isfinite",
    "isinf", "isnan", "le", "logical_and", "logical_not", "logical_or", "logical_xor", "lt",
    "multinomial", "ne", "new_empty", "new_empty_strided", "new_full", "new_ones", "new_zeros",
    "nonzero", "ones_like", "rand_like", "randint_like", "randn_like", "searchsorted", "signbit",
    "zeros_like"};

/* Older versions of torch do not say it; the address of the name is that of one overload alone. */
template <class F> auto overload_of(const F& fn, int) -> decltype(fn.overload_name()) {
  return fn.overload_name();
}
template <class F> const char* overload_of(const F&, long) {
  return nullptr;
}

OpInfo* info_of(Thread& s, const at::RecordFunction& fn) {
  static std::atomic<uint64_t> numbers{0};
  const char *name = fn.name(), *overload = overload_of(fn, 0);
  uint64_t key = mix((uint64_t)name, (uint64_t)overload);
  std::unique_ptr<OpInfo>* known = s.ops.find(key);
  // Schemas that are gone leave their addresses to others.
  if (known && *known && !strcmp((*known)->name.c_str(), name)) return known->get();
  auto full = fn.operator_name();
  if (!full) { // a range, with a text that does not last
    if (known) known->reset();
    return nullptr;
  }
  std::unique_ptr<OpInfo>& found = s.ops[key];
  found = std::make_unique<OpInfo>();
  found->number = ++numbers;
  found->name = full->name;
  found->overload = full->overload_name;
  for (const char* space : {"c10d::", "_c10d_functional::", "_c10d_functional_autograd::"})
    found->is_collective |= full->name.rfind(space, 0) == 0;
  for (const char* each : kWithoutNodes)
    if (full->name == std::string("aten::") + each) found->makes_nodes = false;
  auto op = c10::Dispatcher::singleton().findSchema(*full);
  if (op) {
    found->arguments = op->schema().arguments().size();
    found->is_composite = op->hasKernelForDispatchKey(DispatchKey::CompositeImplicitAutograd);
    for (DispatchKey key : {DispatchKey::AutocastCPU, DispatchKey::AutocastCUDA,
                            DispatchKey::AutocastXPU, DispatchKey::AutocastMPS,
                            DispatchKey::AutocastPrivateUse1})
      if (op->hasKernelForDispatchKey(key)) found->autocast = found->autocast.add(key);
  }
  return found.get();
}

/* Return the arguments of a call; some callers give all of a stack, which these end. */
c10::ArrayRef<const c10::IValue> inputs_of(const at::RecordFunction& fn, const OpInfo& op) {
  auto all = fn.inputs();
  return all.size() > op.arguments ? all.slice(all.size() - op.arguments) : all;
}

/* Keys under which an op takes itself apart, or has something else done: its parts are marked. */
constexpr DispatchKeySet kWrappers({DispatchKey::Python, DispatchKey::FuncTorchBatched,
                                    DispatchKey::FuncTorchGradWrapper,
                                    DispatchKey::FuncTorchDynamicLayerFrontMode,
                                    DispatchKey::FuncTorchDynamicLayerBackMode});

/* What an op is called with, as far as it is asked for every op. */
struct Inputs {
  DispatchKeySet keys;
  bool requires_grad = false;

  void add(const at::Tensor& tensor) {
    if (!tensor.defined()) return;
    keys = keys | tensor.unsafeGetTensorImpl()->key_set();
    requires_grad = requires_grad || tensor.requires_grad();
  }
  void add(const c10::IValue& value) {
    if (value.isTensor())
      add(value.toTensor());
    else if (value.isList())
      for (const c10::IValue& each : value.toListRef())
        if (each.isTensor()) add(each.toTensor());
  }
};

bool is_plain(const at::Tensor& tensor) {
  auto* impl = tensor.unsafeGetTensorImpl();
  return !impl->has_symbolic_sizes_strides() && !impl->is_python_dispatch() && !tensor.is_nested();
}

uint64_t hash_all(c10::IntArrayRef numbers) {
  uint64_t hash = numbers.size();
  for (int64_t number : numbers) hash = (hash + (uint64_t)number) * 0x9E3779B97F4A7C15ull;
  return hash ^ (hash >> 32);
}

uint64_t hash_tensor(uint64_t hash, const at::Tensor& tensor) {
  if (!tensor.defined()) return mix(hash, 1);
  auto device = tensor.device();
  hash = mix(hash, 2 + ((uint64_t)tensor.scalar_type() << 8) + ((uint64_t)tensor.layout() << 16) +
                       ((uint64_t)device.type() << 24) + ((uint64_t)(uint8_t)device.index() << 32));
  if (!is_plain(tensor)) return mix(hash, 3);
  hash = mix(hash, hash_all(tensor.sizes()));
  if (tensor.layout() == c10::kStrided && !tensor.is_contiguous()) hash = mix(hash, hash_all(tensor.strides()));
  return hash;
}

/* `by_type`: the value of what is no tensor does not count. */
uint64_t hash_value(uint64_t hash, const c10::IValue& value, bool by_type) {
  if (value.isTensor()) return hash_tensor(hash, value.toTensor());
  if (value.isNone()) return mix(hash, 5);
  if (value.isList()) {
    if (by_type && value.isIntList()) return mix(hash, 18);
    for (const c10::IValue& each : value.toListRef()) hash = hash_value(hash, each, by_type);
    return mix(hash, 19);
  }
  if (by_type) return mix(hash, 7 + value.isDouble() + 2 * value.isInt());
  if (value.isInt()) return mix(hash ^ 11, (uint64_t)value.toInt());
  if (value.isBool()) return mix(hash, 12 + value.toBool());
  if (value.isDouble()) {
    double number = value.toDouble();
    uint64_t bits;
    memcpy(&bits, &number, sizeof bits);
    return mix(mix(hash, 14), bits);
  }
  if (value.isComplexDouble()) return mix(hash, 15);
  if (value.isString()) return mix(mix(hash, 16), std::hash<std::string>()(value.toStringRef()));
  if (value.isDevice()) {
    auto device = value.toDevice();
    return mix(mix(hash, 17), ((uint64_t)device.type() << 8) + (uint8_t)device.index());
  }
  return mix(hash, 20);
}

/* Return the process group that an argument is; NULL: it is none. */
void* group_of(const c10::IValue& value, std::string* name) {
#ifdef OBSERVER_HAS_GROUPS
  if (!value.isObject()) return nullptr;
  auto type = value.toObjectRef().type()->name();
  if (!type || type->name() != "ProcessGroup") return nullptr;
  auto group = value.toCustomClass<c10d::ProcessGroup>();
  if (name) *name = group->getGroupName();
  return group.get();
#else
  return nullptr;
#endif
}

// -- what Python is told of a new call ------------------------------------------------------------------

PyObject* tuple_of(c10::IntArrayRef numbers) {
  PyObject* made = PyTuple_New((Py_ssize_t)numbers.size());
  for (size_t at = 0; made && at < numbers.size(); at++)
    PyTuple_SetItem(made, (Py_ssize_t)at, PyLong_FromLongLong(numbers[at]));
  return made;
}

/* A tensor: (dtype, shape or None, strides or None, device, bytes). */
PyObject* tell_tensor(const at::Tensor& tensor) {
  if (!tensor.defined()) Py_RETURN_NONE;
  PyObject *shape = nullptr, *strides = nullptr;
  unsigned long long bytes = 0;
  if (is_plain(tensor)) {
    shape = tuple_of(tensor.sizes());
    bytes = (unsigned long long)tensor.numel() * tensor.element_size();
    if (tensor.layout() != c10::kStrided)
      strides = PyTuple_New(0);
    else if (!tensor.is_contiguous())
      strides = tuple_of(tensor.strides());
  }
  return Py_BuildValue("(sNNsK)", c10::toString(tensor.scalar_type()), shape ? shape : Py_NewRef(Py_None),
                       strides ? strides : Py_NewRef(Py_None), tensor.device().str().c_str(), bytes);
}

/* Other values are themselves; a device is bytes, a process group a tuple of its name, and what has
   no value is an ellipsis. */
PyObject* tell(const c10::IValue& value) {
  if (value.isTensor()) return tell_tensor(value.toTensor());
  if (value.isNone()) Py_RETURN_NONE;
  if (value.isBool()) return PyBool_FromLong(value.toBool());
  if (value.isInt()) return PyLong_FromLongLong(value.toInt());
  if (value.isDouble()) return PyFloat_FromDouble(value.toDouble());
  if (value.isString()) {
    const std::string& text = value.toStringRef();
    return PyUnicode_DecodeUTF8(text.data(), (Py_ssize_t)text.size(), "replace");
  }
  if (value.isDevice()) return PyBytes_FromString(value.toDevice().str().c_str());
  if (value.isTensorList()) {
    PyObject* made = PyList_New(0);
    for (const at::Tensor& each : value.toTensorList()) {
      Held told(tell_tensor(each));
      if (told) PyList_Append(made, told.get());
    }
    return made;
  }
  if (value.isList()) {
    PyObject* made = PyList_New(0);
    for (const c10::IValue& each : value.toListRef()) {
      Held told(tell(each));
      if (told) PyList_Append(made, told.get());
    }
    return made;
  }
  std::string name;
  if (group_of(value, &name)) return Py_BuildValue("(s)", name.c_str());
  return Py_NewRef(Py_Ellipsis);
}

Held tell_all(const at::RecordFunction& fn, const OpInfo& op) {
  PyObject* made = PyList_New(0);
  for (const c10::IValue& value : inputs_of(fn, op)) {
    Held told(tell(value));
    PyErr_Clear();
    PyList_Append(made, told ? told.get() : Py_Ellipsis);
  }
  return Held(made);
}

// -- the observer -----------------------------------------------------------------------------------------

enum Way : uint32_t { kForward, kBackward, kAccumulate };

/* Return the site of an op: in forward by scope and place, in a node by the forward op of that. */
Site& site_of(Thread& s, const OpInfo& op, Way way, uint32_t where, uint32_t place, uint64_t* site = nullptr) {
  uint64_t key = mix(mix(op.number, (uint64_t)where << 32 | place), way);
  if (site) *site = key;
  if (Site* found = s.sites.find(key)) return *found;
  Site made;
  {
    Python python;
    s.busy = true;
    Held told = ask("site", "(ssIII)", op.name.c_str(), op.overload.c_str(), (unsigned)way, where, place);
    unsigned number = 0, forward = 0;
    unsigned long long varying = 0;
    if (told && PyArg_ParseTuple(told.get(), "IIK", &number, &forward, &varying))
      made = Site{number, forward, varying};
    s.busy = false;
  }
  if (s.sites.size() > kCallsAtMost) s.sites.clear();
  return s.sites[key] = made;
}

uint64_t key_of(const Site& site, const OpInfo& op, const at::RecordFunction& fn) {
  uint64_t key = mix(site.number, 2);
  if (!(g.flags & kShapes)) { // the device is all that its text says of them
    for (const c10::IValue& value : inputs_of(fn, op))
      if (value.isTensor() && value.toTensor().defined())
        return mix(key, (uint64_t)value.toTensor().device().type() * 256 + (uint8_t)value.toTensor().device().index());
  }
  uint64_t bit = 1;
  for (const c10::IValue& value : inputs_of(fn, op)) {
    key = op.is_collective && value.isObject() ? mix(key, (uint64_t)group_of(value, nullptr))
                                              : hash_value(key, value, (site.varying & bit) != 0);
    bit = bit << 1 ? bit << 1 : bit;
  }
  return key;
}

/* Return what is pushed for a call that was not made before: Python makes its text. */
const Message& new_message(Thread& s, Site& site, const OpInfo& op, const at::RecordFunction& fn,
                           uint64_t key) {
  Python python;
  s.busy = true;
  Held inputs = tell_all(fn, op);
  Held told = ask("message", "(IO)", site.number, inputs.get());
  PyObject* message = nullptr;
  int is_lasting = 0;
  unsigned long long varying = site.varying;
  const Message* found = &s.copied;
  if (told && PyArg_ParseTuple(told.get(), "OpK", &message, &is_lasting, &varying)) {
    if (varying != site.varying) {
      site.varying = varying;
      key = key_of(site, op, fn);
    }
    if (s.calls.size() > kCallsAtMost) s.calls.clear();
    Message& made = is_lasting ? s.calls[key] : s.copied;
    take_message(&made, message);
    found = &made;
  } else {
    take_message(&s.copied, nullptr);
  }
  s.busy = false;
  return *found;
}

std::shared_ptr<Nodes> nodes_of(uint64_t thread, int64_t* base) {
  std::lock_guard<std::mutex> lock(g_mutex);
  auto found = g_threads.find(thread);
  if (found == g_threads.end()) return nullptr;
  *base = found->second.payload_base;
  return found->second.nodes;
}

/* Go into a node: find out what it belongs to. */
void begin_node(Thread& s, uint64_t number, uint64_t thread) {
  s.in_node = true;
  if (number == UINT64_MAX) { // it adds up a gradient of what ran before
    s.node = s.last;
    s.node.accumulates = true;
    s.node.payload = kNoNumber;
    return;
  }
  if (thread != s.home_id || !s.home) {
    s.home_id = thread;
    s.home = thread == s.id ? s.nodes : nodes_of(thread, &s.home_base);
  }
  s.node = Node{};
  if (s.home && s.home->session == s.session) s.home->find((int64_t)number, &s.node.forward, &s.node.payload);
  s.last = s.node;
}

/* Find out what runs around a call, where that began before ops were marked. */
void look_around(Thread& s) {
  int task = torch::autograd::get_current_graph_task_id();
  s.unsure = task != -1;
  s.in_node = false;
  auto node = task == -1 || task == s.task ? nullptr : torch::autograd::get_current_node();
  if (node) begin_node(s, node->sequence_nr(), node->thread_id());
}

bool is_traced() { // a compiler or an exporter only thinks of running it
  using TLS = c10::impl::TorchDispatchModeTLS;
  if (!TLS::any_modes_set()) return false;
  for (auto key : {c10::impl::TorchDispatchModeKey::FAKE, c10::impl::TorchDispatchModeKey::PROXY,
                   c10::impl::TorchDispatchModeKey::FUNCTIONAL})
    if (TLS::get_mode(key).has_value()) return true;
  return false;
}

const char kEvaluate[] = "autograd::engine::evaluate_function";

/* Return the scope of an op in forward; a node's is 0, with `way` set. */
uint32_t scope_of(Thread& s, Way* way) {
  *way = kForward;
  if (!s.in_node) {
    int task = torch::autograd::get_current_graph_task_id();
    if (task != -1 && task != s.task) return 1; // of a callback of the engine
    return s.scope_is_optimizer && at::GradMode::is_enabled() ? kUnknown : s.scope;
  }
  *way = s.node.accumulates ? kAccumulate : kBackward;
  if (!at::GradMode::is_enabled() || !is_recompute(s)) return kUnknown;
  *way = kForward;
  if (const uint32_t* found = s.recomputed.find(s.node.forward)) return *found;
  Python python;
  s.busy = true;
  uint32_t scope = as_number(ask("recompute_scope", "(I)", s.node.forward));
  s.busy = false;
  return s.recomputed[s.node.forward] = scope;
}

/* Note which node an op without gradients belongs to: that of an autograd function around it. */
void note_function(Thread& s, int64_t next) {
  if (next != s.next_number && s.next_number != kNoNumber)
    s.function = is_in_function() ? next - 1 : kNoNumber;
  else if (s.function != kNoNumber && (next != s.function + 1 || !is_in_function()))
    s.function = kNoNumber;
}

/* Note whose the nodes are that were made since the last op, in no op: those of a script, or of an
   autograd function without ops. Their layer is known; their line is if the layer has no Python. */
void fill_gap(Thread& s, uint32_t scope, uint32_t place, int64_t next) {
  if (s.next_number == kNoNumber || next <= s.next_number || next > s.next_number + 16) return;
  if (s.open.size() > 1) return; // made by an op that is open, which has them in the end
  if (s.scopes.empty() || s.scopes.back().place != place) place = kUnknown;
  uint64_t key = mix(mix(77, scope), place);
  Site* found = s.sites.find(key);
  if (!found) {
    Python python;
    s.busy = true;
    Site made;
    made.forward = as_number(ask("function", "(II)", scope, place));
    s.busy = false;
    found = &(s.sites[key] = made);
  }
  for (int64_t number = s.next_number; number < next; number++)
    s.nodes->set(number, found->forward, kNoNumber);
}

void note_row(Thread& s, const at::RecordFunction& fn, const Site& site) {
  s.row_count++;
  std::lock_guard<std::mutex> lock(s.rows_mutex);
  s.rows.emplace_back(fn.handle(), site.number);
}

void note_call(Thread& s, const at::RecordFunction& fn, const OpInfo& op) {
  Way way;
  uint32_t scope = scope_of(s, &way);
  bool is_forward = way == kForward;
  uint32_t place = is_forward ? place_of_call(s) : kUnknown;
  note_row(s, fn, site_of(s, op, way, is_forward ? scope : s.node.forward, place));
}

/* Note where an autograd function is called, or what torch.compile made. */
void note_range(Thread& s, const at::RecordFunction& fn) {
  static thread_local std::unordered_map<std::string, std::unique_ptr<OpInfo>> known;
  // What begins with a brace is a mark of our own.
  if (*fn.name() == '{' || !PyGILState_GetThisThreadState() || is_traced()) return;
  auto found = known.find(fn.name());
  if (found == known.end()) {
    if (known.size() >= kRangesAtMost) return; // names that are made up as the program runs
    found = known.emplace(fn.name(), std::make_unique<OpInfo>()).first;
    found->second->number = 0 - (uint64_t)known.size();
    found->second->name = fn.name();
  }
  note_call(s, fn, *found->second);
}

/* Note where an op was called that was to be made of others, and is of none. */
void end_made(Thread& s, const at::RecordFunction& fn) {
  uint64_t before = s.made.back().second;
  s.made.pop_back();
  const OpInfo* op = s.row_count == before && g_on.load() && !is_traced() ? info_of(s, fn) : nullptr;
  if (op) note_call(s, fn, *op);
}

/* A range that is no op: what the engine does for a node, and its hooks, or something else's. */
void begin_range(Thread& s, const at::RecordFunction& fn) {
  if (strncmp(fn.name(), kEvaluate, sizeof kEvaluate - 1) != 0) {
    if (g.flags & kRows) note_range(s, fn);
    return;
  }
  auto node = torch::autograd::get_current_node();
  if (!node) return;
  Open open{&fn};
  open.is_node = true;
  open.was_in_node = s.in_node && !s.unsure;
  open.outer = s.node;
  begin_node(s, node->sequence_nr(), node->thread_id());
  s.open.push_back(open);
}

/* Return the payload of the same op that is open around the one that begins, and made a node for it:
   under a transform or a subclass the node is made before anything is marked. What batching puts
   around an op, as a view, is not what the node says it is of. */
int64_t payload_around(Thread& s, const OpInfo& op, int64_t next) {
  for (size_t at = s.open.size() - 1; at--;) {
    Open& outer = s.open[at];
    uint32_t forward;
    int64_t payload;
    if (outer.is_node) return kNoNumber;
    if (!outer.fills || outer.op->name != op.name || next <= outer.first || outer.payload != kNoNumber || s.nodes->find(outer.first, &forward, &payload))
      continue; // it made none, its part has it, or it is one of the parts'
    return outer.payload = s.payload_base + outer.first;
  }
  return kNoNumber;
}

void begin_marked(Thread& s, const at::RecordFunction& fn, OpInfo& op, const Inputs& inputs, Open& open) {
  Way way;
  uint32_t scope = scope_of(s, &way);
  bool with_grad = at::GradMode::is_enabled();
  int64_t next = (int64_t)at::sequence_number::peek();
  bool is_forward = way == kForward;
  uint32_t place = is_forward ? place_of_call(s) : kUnknown;
  if (is_forward && with_grad) fill_gap(s, scope, place, next);
  Site& site = site_of(s, op, way, is_forward ? scope : s.node.forward, place, &open.site);
  if (g.flags & kRows) note_row(s, fn, site);
  open.forward = is_forward ? site.forward : s.node.forward;
  bool makes_nodes = is_forward && with_grad && inputs.requires_grad &&
                     (site.nodes < 0 ? op.makes_nodes : site.nodes > 0);
  if (!(is_forward && with_grad && inputs.requires_grad)) open.site = 0; // nothing to learn
  open.op = &op;
  int64_t payload = kNoNumber;
  if (with_grad) {
    s.function = kNoNumber;
    open.first = next;
    open.payload = is_forward ? (makes_nodes ? s.payload_base + next : kNoNumber) : s.node.payload;
  }
  if (!is_forward) {
    payload = s.node.payload;
  } else if (with_grad) {
    payload = makes_nodes ? open.payload : payload_around(s, op, next);
  } else {
    note_function(s, next);
    if (s.function != kNoNumber) {
      payload = s.payload_base + s.function;
      s.nodes->set(s.function, open.forward, payload);
    }
  }
  if (g.flags & kRows) return;
  uint64_t key = key_of(site, op, fn);
  const Message* message = s.calls.find(key);
  if (!message) message = &new_message(s, site, op, fn, key);
  if (!message->is_set) return;
  open.is_marked = true;
  push_message(*message, payload);
}

/* Return whether an op has parts that are marked in its place. A transform other than vmap hands it
   on without a call. */
bool is_taken_apart(Thread& s, const OpInfo& op, DispatchKeySet keys) {
  keys = keys & (kWrappers | op.autocast);
  if (keys.empty()) return false;
  if (keys.has_any(op.autocast | DispatchKeySet({DispatchKey::Python, DispatchKey::FuncTorchBatched}))) return true;
  if (!PyGILState_GetThisThreadState()) return true;
  Python python;
  s.busy = true;
  Held told = ask("is_batched", nullptr);
  s.busy = false;
  return !told || PyObject_IsTrue(told.get());
}

void begin_op(Thread& s, const at::RecordFunction& fn, OpInfo& op) {
  if (op.is_composite) { // its parts are marked, and make its nodes
    if (g.flags & kRows) s.made.emplace_back(&fn, s.row_count);
    return;
  }
  s.open.push_back(Open{&fn});
  Open& open = s.open.back(); // nothing is opened on this thread before the op begins
  // A thread that does a part of an op's work, and makes room for it, calls nothing.
  bool is_helper = !s.in_node && at::in_parallel_region() && !PyGILState_GetThisThreadState();
  if (is_helper || is_traced()) {
    open.is_leaf = true;
    s.leaf++;
    return;
  }
  Inputs inputs;
  for (const c10::IValue& value : inputs_of(fn, op)) inputs.add(value);
  auto local = c10::impl::tls_local_dispatch_key_set();
  DispatchKeySet keys = (inputs.keys | local.included_) - local.excluded_;
  if (is_taken_apart(s, op, keys)) {
    if (!s.in_node && at::GradMode::is_enabled() && inputs.requires_grad) {
      open.fills = true; // what its parts leave
      open.op = &op;
      open.first = (int64_t)at::sequence_number::peek();
      Way way;
      uint32_t scope = scope_of(s, &way);
      open.forward = site_of(s, op, way, scope, place_of_call(s)).forward;
      open.payload = kNoNumber;
    }
    return;
  }
  open.is_leaf = true;
  s.leaf++;
  begin_marked(s, fn, op, inputs, open);
}

void begin_record(Thread& s, const at::RecordFunction& fn);

std::unique_ptr<at::ObserverContext> on_start(const at::RecordFunction& fn) {
  if (!g_on.load(std::memory_order_acquire)) return nullptr;
  Thread& s = this_thread();
  if (s.busy) return nullptr;
  switch (fn.scope()) {
    case at::RecordScope::BACKWARD_FUNCTION:
      if (!s.leaf && !(s.open.size() && s.open.back().is_node)) { // called without the engine
        Open open{&fn};
        open.is_node = true;
        open.was_in_node = s.in_node;
        open.outer = s.node;
        begin_node(s, (uint64_t)fn.seqNr(), fn.forwardThreadId());
        s.open.push_back(open);
      }
      break;
    case at::RecordScope::USER_SCOPE:
      begin_record(s, fn);
      break;
    default:
      if (s.leaf) break; // inside an op that is marked, or is not to be
      if (s.unsure && s.open.empty()) look_around(s);
      if (OpInfo* op = info_of(s, fn))
        begin_op(s, fn, *op);
      else
        begin_range(s, fn);
  }
  return nullptr;
}

bool leave(Thread& s, uint64_t token) {
  size_t at = s.scopes.size();
  while (at && s.scopes[at - 1].token != token) at--;
  if (!at) return false;
  while (s.scopes.size() >= at) {
    Scope scope = std::move(s.scopes.back());
    s.scopes.pop_back();
    s.scope = scope.outer;
    s.scope_is_optimizer = scope.outer_is_optimizer;
    s.task = scope.outer_task;
    s.in_node = scope.was_in_node;
    s.node = scope.outer_node;
    if (s.next_number != kNoNumber && at::GradMode::is_enabled())
      s.next_number = (int64_t)at::sequence_number::peek();
    for (uint32_t each = 0; each < scope.ranges; each++) pop_range();
  }
  return true;
}

void end_op(Thread& s, const Open& open) {
  if (open.is_leaf) s.leaf--;
  if (open.is_marked) pop_range();
  if (open.first != kNoNumber) {
    int64_t next = (int64_t)at::sequence_number::peek(), end = std::min(next, open.first + kNodesOfAnOp);
    for (int64_t number = open.first; number < end; number++) {
      uint32_t forward;
      int64_t payload;
      if (!open.fills || !s.nodes->find(number, &forward, &payload))
        s.nodes->set(number, open.forward, open.payload);
    }
    if (Site* found = open.site ? s.sites.find(open.site) : nullptr) {
      found->nodes = (int8_t)(end - open.first);
      open.op->makes_nodes = end > open.first;
    }
  }
  if (open.is_leaf) s.next_number = (int64_t)at::sequence_number::peek();
  if (open.is_node) {
    if (!s.node.accumulates) s.last = s.node;
    s.in_node = open.was_in_node;
    if (open.was_in_node) s.node = open.outer;
  }
}

void on_end(const at::RecordFunction& fn, at::ObserverContext*) {
  Thread& s = this_thread();
  if (fn.scope() == at::RecordScope::USER_SCOPE) {
    if (!s.scopes.empty()) leave(s, (uint64_t)(uintptr_t)&fn);
    return;
  }
  if (!s.made.empty() && s.made.back().first == &fn) {
    end_made(s, fn);
    return;
  }
  // Ranges of the program's own may end in any order; ops do not.
  for (size_t at = s.open.size(); at--;) {
    if (s.open[at].record != &fn) {
      if (s.leaf) return; // what is in an op was not noted
      continue;
    }
    Open open = s.open[at];
    s.open.erase(s.open.begin() + (std::ptrdiff_t)at);
    end_op(s, open);
    return;
  }
}

// -- recordings on demand -------------------------------------------------------------------------------

#ifdef OBSERVER_HAS_KINETO
} // namespace
namespace libkineto {
/* As far as it is used: its own header includes ones that torch 2.6 does not bring. */
class LibkinetoApi {
 public:
  void registerClient(ClientInterface* client);
  void *config_loader, *profiler;
  ClientInterface* client;
};
LibkinetoApi& api() __attribute__((weak)); // not every build of torch has it
}
namespace {

/* Return whether that is what torch registered, where it is thought to lie in memory. */
bool is_torchs(libkineto::ClientInterface* client) {
  Dl_info object, table;
  return client && dladdr(client, &object) && dladdr(*(void**)client, &table) &&
         object.dli_fbase == table.dli_fbase && strstr(typeid(*client).name(), "LibKinetoClient");
}

/* Stands between the recorder and torch, and learns where a recording that another process asked for
   begins and ends: on a thread of the recorder's, which holds none of its locks, or, where steps are
   counted, on the program's. */
class OnDemand : public libkineto::ClientInterface {
 public:
  bool begin(PyObject* follower) {
    if (!torchs_) {
      if (!&libkineto::api || !is_torchs(libkineto::api().client)) return false;
      torchs_ = libkineto::api().client;
    }
    follower_ = Held(Py_NewRef(follower));
    is_over_ = false;
    libkineto::api().registerClient(this);
    return true;
  }
  /* Under the GIL. Afterwards no thread is in it, or comes: Python may end. */
  void end(bool forked) {
    if (!follower_) return;
    libkineto::api().registerClient(torchs_);
    is_over_ = true;
    if (forked) inside_ = 0; // whoever was is not here
    Py_BEGIN_ALLOW_THREADS
    // A handler of a signal may be what ends it, inside of a call of this thread.
    while (inside_ > mine_) std::this_thread::sleep_for(std::chrono::milliseconds(1));
    Py_END_ALLOW_THREADS
    follower_ = Held();
    runs_ = false;
  }

  void init() override {}
  void prepare(bool shapes, bool memory, bool stack, bool flops, bool modules) override {
    with_stack_ = stack;
    torchs_->prepare(shapes, memory, stack, flops, modules);
  }
  void start() override {
    runs_ = true;
    tell("begin", "i");
    torchs_->start();
    tell("began");
  }
  void stop() override {
    tell("ends");
    torchs_->stop();
    tell("ended");
    runs_ = false;
  }
  // Newer versions of torch have these.
  virtual void start_memory_profile() { start_memory(torchs_, 0); }
  virtual void stop_memory_profile() { stop_memory(torchs_, 0); }
  virtual void export_memory_profile(const std::string& path) { export_memory(torchs_, path, 0); }

 private:
  template <class C> static auto start_memory(C* c, int) -> decltype(c->start_memory_profile()) {
    c->start_memory_profile();
  }
  template <class C> static auto stop_memory(C* c, int) -> decltype(c->stop_memory_profile()) {
    c->stop_memory_profile();
  }
  template <class C>
  static auto export_memory(C* c, const std::string& p, int) -> decltype(c->export_memory_profile(p)) {
    c->export_memory_profile(p);
  }
  template <class C> static void start_memory(C*, long) {}
  template <class C> static void stop_memory(C*, long) {}
  template <class C> static void export_memory(C*, const std::string&, long) {}

  void tell(const char* event, const char* format = nullptr) {
    inside_++, mine_++;
    if (!is_over_ && runs_) {
      Python python;
      Held(PyObject_CallMethod(follower_.get(), event, format, (int)with_stack_));
    }
    mine_--, inside_--;
  }

  libkineto::ClientInterface* torchs_ = nullptr;
  Held follower_;
  bool with_stack_ = false;
  std::atomic<bool> runs_{false}, is_over_{true};
  std::atomic<int> inside_{0};
  static inline thread_local int mine_ = 0; // calls of `tell` on this thread
};
#else
struct OnDemand {
  bool begin(PyObject*) { return false; }
  void end(bool) {}
};
#endif
OnDemand& g_on_demand = *new OnDemand();

// -- from Python ----------------------------------------------------------------------------------------

PyObject* py_listener(PyObject*, PyObject* domain) {
  const char* name = PyUnicode_AsUTF8(domain);
  return name ? PyLong_FromLong(find_listener(name)) : nullptr;
}

PyObject* py_register_text(PyObject*, PyObject* given) {
  const char* text = PyUnicode_AsUTF8(given);
  if (!text) return nullptr;
  return PyLong_FromVoidPtr(g_nvtx.register_text(g_nvtx.domain, text));
}

/* Push or mark with attributes in Python: `message` is a number of `register_text`, or a text. */
bool read_attributes(PyObject* given, Attributes* attributes, Held* message) {
  Held payload(PyObject_GetAttrString(given, "payload"));
  *message = Held(PyObject_GetAttrString(given, "message"));
  if (!payload || !*message) return false;
  attributes->payload = PyLong_AsLongLong(payload.get());
  bool is_registered = PyLong_Check(message->get());
  attributes->message_type = is_registered ? 3 : 1;
  attributes->message = is_registered ? PyLong_AsVoidPtr(message->get()) : PyUnicode_AsUTF8(message->get());
  return !PyErr_Occurred();
}
PyObject* py_push(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Attributes attributes;
  Held message;
  if (count < 1 || !read_attributes(args[0], &attributes, &message)) return nullptr;
  g_nvtx.push(g_nvtx.domain, &attributes);
  Py_RETURN_NONE;
}
PyObject* py_pop(PyObject*, PyObject* const*, Py_ssize_t) {
  g_nvtx.pop(g_nvtx.domain);
  Py_RETURN_NONE;
}
PyObject* py_mark(PyObject*, PyObject* const* args, Py_ssize_t count) {
  Attributes attributes;
  Held message;
  if (count < 1 || !read_attributes(args[0], &attributes, &message)) return nullptr;
  if (g_nvtx.mark) g_nvtx.mark(g_nvtx.domain, &attributes);
  Py_RETURN_NONE;
}

/* Have torch call the observer while ops are marked; they get ids only where it asks for them. */
void observe() {
  bool with_ids = (g.flags & kRows) != 0, wanted = g_on.load();
  if (g_registered && (!wanted || with_ids != g_with_ids)) {
    at::removeCallback(g_handle);
    g_registered = false;
  }
  if (g_registered || !wanted) return;
  at::RecordFunctionCallback callback(on_start, on_end);
  callback.needsInputs(true).needsIds(with_ids).scopes({at::RecordScope::FUNCTION,
      at::RecordScope::BACKWARD_FUNCTION, at::RecordScope::USER_SCOPE});
  g_handle = at::addGlobalCallback(callback);
  g_registered = true;
  g_with_ids = with_ids;
}

/* start(asked, layers, push, pop, domain, flags, engine_run): begin a session. */
PyObject* py_start(PyObject*, PyObject* args) {
  PyObject *asked, *layers, *push, *pop, *domain, *run;
  unsigned flags;
  if (!PyArg_ParseTuple(args, "OO!OOOIO", &asked, &PyDict_Type, &layers, &push, &pop, &domain, &flags, &run)) return nullptr;
  g.is_native = push == Py_None;
  g.asked = Held(Py_NewRef(asked));
  g.push = g.is_native ? Held() : Held(Py_NewRef(push));
  g.pop = g.is_native ? Held() : Held(Py_NewRef(pop));
  g.domain = Held(Py_NewRef(domain));
  g.engine_run = Held(Py_NewRef(run));
  g.flags = flags & ~kRows;
  g.scopes.clear();
  g.places.clear();
  g.lines.clear();
  for (auto& each : g.codes) Py_DECREF(each.first);
  g.codes.clear();
  g_numbers = 0;
  g.records.clear();
  g.modules.clear();
  g.layers = Held(Py_NewRef(layers));
  g.follows = true;
  change_state(g_epoch);
  change_state(g_session);
  this_thread(); // it is the first
  Py_RETURN_NONE;
}

/* note_rows(on): note which op is at which site, in place of ranges, or no longer. */
PyObject* py_note_rows(PyObject*, PyObject* on) {
  g.flags = PyObject_IsTrue(on) ? g.flags | kRows : g.flags & ~kRows;
  g.records.clear();
  observe();
  Py_RETURN_NONE;
}

/* follow(on): know modules, or leave them all to Python. */
PyObject* py_follow(PyObject*, PyObject* on) {
  g.follows = PyObject_IsTrue(on) != 0;
  Py_RETURN_NONE;
}

/* activate(on): mark ops, or let them through. */
PyObject* py_activate(PyObject*, PyObject* on) {
  bool wanted = PyObject_IsTrue(on) != 0 && (bool)g.asked;
  if (wanted && !g_on.load()) change_state(g_activation);
  g_on.store(wanted, std::memory_order_release);
  observe();
  Py_RETURN_NONE;
}

/* on_demand(follower) -> whether its methods are called where recordings on demand begin and end. */
PyObject* py_on_demand(PyObject*, PyObject* follower) {
  return PyBool_FromLong(g_on_demand.begin(follower));
}

/* stop(forked): end the session. A forked process keeps the callback, which does nothing. */
PyObject* py_stop(PyObject*, PyObject* forked) {
  g_on.store(false, std::memory_order_release);
  g_on_demand.end(forked == Py_True);
  if (forked == Py_True) {
    new (&g_mutex) std::mutex(); // whoever held it is not here
  } else {
    Thread& s = this_thread();
    if (!s.scopes.empty()) leave(s, s.scopes.front().token);
    if (g_registered) at::removeCallback(g_handle);
    g_registered = false;
  }
  g.asked = Held();
  g.modules.clear();
  Py_RETURN_NONE;
}

/* cleared(): somebody took all callbacks of torch away. */
PyObject* py_cleared(PyObject*, PyObject*) {
  g_registered = false;
  Py_RETURN_NONE;
}

/* forget(): let go of sites and places; their numbers are never given again. */
PyObject* py_forget(PyObject*, PyObject*) {
  g.places.clear();
  g.lines.clear();
  change_state(g_epoch);
  Py_RETURN_NONE;
}

/* scope(is_optimizer) -> its number; 0 is outside of all, 1 that of the engine's callbacks. */
PyObject* py_scope(PyObject*, PyObject* is_optimizer) {
  g.scopes.push_back(ScopeInfo{is_optimizer == Py_True, Message{}});
  return PyLong_FromSize_t(g.scopes.size() - 1);
}

/* Open a range, or a record, with a text that Python gives; return whether it is a range. */
uint32_t open_text(Records* records, Texts* texts, const char* method, uint32_t number, int which) {
  if (!g_on.load()) return 0;
  bool is_record = (g.flags & kRows) != 0;
  Message& text = is_record ? texts->record : texts->range;
  if (!text.is_set) {
    Held told = ask(method, "(Ii)", number, which);
    take_message(&text, told.get());
  }
  if (!text.is_set) return 0;
  if (!is_record) {
    push_message(text, kNoNumber);
    return 1;
  }
  Thread& s = this_thread();
  s.busy = true; // it is none of the program's
  records->open(text.text);
  s.busy = false;
  return 0;
}
uint32_t open_scope_text(Records* records, uint32_t number) {
  if (number >= g.scopes.size()) return 0;
  return open_text(records, &g.scopes[number].texts, "scope_message", number, 0);
}
uint32_t open_line(Records* records, uint32_t place, bool recompute) {
  Texts& texts = g.lines[((uint64_t)place << 1) + recompute];
  return open_text(records, &texts, "line_message", place, (int)recompute);
}

Scope& open_scope(Thread& s, uint64_t token, uint32_t ranges, Records records) {
  s.scopes.push_back(Scope{token, nullptr, kUnknown, ranges, s.scope, s.scope_is_optimizer, s.in_node,
                           s.task, s.node, std::move(records)});
  return s.scopes.back();
}
void go_into(Thread& s, uint32_t scope) {
  s.next_number = (int64_t)at::sequence_number::peek(); // what was made before was made outside
  s.scope = scope;
  s.scope_is_optimizer = scope < g.scopes.size() && g.scopes[scope].is_optimizer;
  s.task = torch::autograd::get_current_graph_task_id();
  s.in_node = false;
}

/* Open a scope; or, with a message, a text of the user's own, which is in the same. */
void open_known(Thread& s, uint64_t token, uint32_t scope, const Message& message) {
  Records records;
  if (!message.is_set) {
    uint32_t ranges = open_scope_text(&records, scope);
    open_scope(s, token, ranges, std::move(records));
    go_into(s, scope);
    return;
  }
  uint32_t ranges = g_on.load();
  if (ranges) push_message(message, kNoNumber);
  open_scope(s, token, ranges, std::move(records));
}

/* A range of torch.profiler that the program opens: steps of optimizers, and its own. */
void begin_record(Thread& s, const at::RecordFunction& fn) {
  // Those that may end on another thread are of a process group.
  if (fn.isAsync() || !PyGILState_GetThisThreadState()) return;
  Python python;
  auto found = g.records.find(fn.name());
  Record record;
  if (found != g.records.end()) {
    record = found->second;
  } else {
    PyObject* message = nullptr;
    int is_lasting = 0;
    s.busy = true;
    Held told = ask("record", "(s)", fn.name());
    s.busy = false;
    if (!told || told.get() == Py_None || !PyArg_ParseTuple(told.get(), "IOp", &record.scope, &message, &is_lasting))
      return;
    take_message(&record.message, message);
    if (g.records.size() >= kRangesAtMost) g.records.clear();
    if (is_lasting) g.records[fn.name()] = record;
  }
  open_known(s, (uint64_t)(uintptr_t)&fn, record.scope, record.message);
}

/* know_module(module, layer, forward, recompute): what `enter_module` asks for. */
PyObject* py_know_module(PyObject*, PyObject* args) {
  PyObject *module, *layer;
  unsigned forward, recompute;
  if (!PyArg_ParseTuple(args, "OOII", &module, &layer, &forward, &recompute)) return nullptr;
  if (g.modules.size() > kCallsAtMost) g.modules.clear();
  g.modules[(uint64_t)module] = ModuleInfo{Held(Py_NewRef(layer)), forward, recompute};
  Py_RETURN_NONE;
}

/* enter_module(module, skipped=0) -> whether it did, as it knows it: from the wrapper that calls it,
   whose frame runs, or is one further out. */
PyObject* py_enter_module(PyObject*, PyObject* const* args, Py_ssize_t count) {
  int skipped = count > 1 ? (int)PyLong_AsLong(args[1]) : 0;
  ModuleInfo* module = count && g.follows ? g.modules.find((uint64_t)args[0]) : nullptr;
  Held id(module ? PyLong_FromVoidPtr(args[0]) : nullptr);
  if (!id || PyDict_GetItemWithError(g.layers.get(), id.get()) != module->layer.get()) Py_RETURN_FALSE;
  Thread& s = this_thread();
  s.last = Node{};
  bool recompute = torch::autograd::get_current_graph_task_id() != -1;
  uint32_t scope = recompute ? module->recompute : module->forward;
  uint32_t place = place_of_call(s, skipped + 1);
  int64_t next = (int64_t)at::sequence_number::peek();
  if (!at::GradMode::is_enabled() && s.next_number != kNoNumber && next != s.next_number) {
    if (is_in_function()) {
      uint32_t forward = as_number(ask("function", "(II)", s.scope, place));
      s.nodes->set(next - 1, forward, s.payload_base + next - 1);
    }
    s.next_number = next;
    s.function = kNoNumber;
  }
  Records records;
  uint32_t ranges = place ? open_line(&records, place, recompute) : 0;
  ranges += open_scope_text(&records, scope);
  Scope& opened = open_scope(s, (uint64_t)args[0], ranges, std::move(records));
  opened.activation = activation_of(skipped); // runs as long as this is open
  opened.place = place;
  go_into(s, scope);
  Py_RETURN_TRUE;
}

/* leave_module(module) -> whether it was entered. */
PyObject* py_leave_module(PyObject*, PyObject* module) {
  return PyBool_FromLong(leave(this_thread(), (uint64_t)module));
}

/* enter(token, scope, message): another scope, or a text of the user's own, which is in the same. */
PyObject* py_enter(PyObject*, PyObject* args) {
  unsigned long long token;
  unsigned scope;
  PyObject* given;
  if (!PyArg_ParseTuple(args, "KIO", &token, &scope, &given)) return nullptr;
  Message message;
  take_message(&message, given);
  open_known(this_thread(), token, scope, message);
  Py_RETURN_NONE;
}

PyObject* py_leave(PyObject*, PyObject* token) {
  uint64_t wanted = PyLong_AsUnsignedLongLong(token);
  if (PyErr_Occurred()) return nullptr;
  return PyBool_FromLong(leave(this_thread(), wanted));
}

/* where(frame) -> (way, scope or forward op, place): of what the calling thread does. */
PyObject* py_where(PyObject*, PyObject* frame) {
  Thread& s = this_thread();
  Way way;
  uint32_t scope = scope_of(s, &way);
  uint32_t place = way == kForward && (g.flags & kSource) && frame != Py_None
                       ? place_from((PyFrameObject*)frame, s) : kUnknown;
  long long payload = way == kForward ? kNoNumber : s.node.payload;
  return Py_BuildValue("(IIIL)", (unsigned)way, way == kForward ? scope : s.node.forward, place, payload);
}

/* opened() -> (token, id of the wrapper's frame, place) of what is open, the innermost last. */
PyObject* py_opened(PyObject*, PyObject*) {
  PyObject* made = PyList_New(0);
  std::unordered_map<void*, uintptr_t> ids;
  for (Walk walk(PyEval_GetFrame()); walk.frame(); walk.next()) ids[activation_of(walk.frame())] = (uintptr_t)walk.frame();
  for (const Scope& each : this_thread().scopes) {
    auto id = ids.find(each.activation);
    Held item(Py_BuildValue("(KKI)", (unsigned long long)each.token,
                            (unsigned long long)(id == ids.end() ? 0 : id->second), (unsigned)each.place));
    if (item) PyList_Append(made, item.get());
  }
  return made;
}

/* rows() -> bytes: (id of an op, number of its site, 0) of each, and forget them. */
PyObject* py_rows(PyObject*, PyObject*) {
  std::vector<uint64_t> all;
  std::lock_guard<std::mutex> lock(g_mutex);
  for (auto& row : g_rows) { all.push_back(row.first); all.push_back(row.second); }
  g_rows.clear();
  for (Thread* thread : g_alive) {
    std::lock_guard<std::mutex> rows(thread->rows_mutex);
    for (auto& row : thread->rows) { all.push_back(row.first); all.push_back(row.second); }
    thread->rows.clear();
  }
  return PyBytes_FromStringAndSize((const char*)all.data(), (Py_ssize_t)(all.size() * sizeof(uint64_t)));
}

PyMethodDef methods[] = {
    {"listener", py_listener, METH_O, ""},
    {"register_text", py_register_text, METH_O, ""},
    {"push", (PyCFunction)(void (*)(void))py_push, METH_FASTCALL, ""},
    {"pop", (PyCFunction)(void (*)(void))py_pop, METH_FASTCALL, ""},
    {"mark", (PyCFunction)(void (*)(void))py_mark, METH_FASTCALL, ""},
    {"start", py_start, METH_VARARGS, ""},
    {"activate", py_activate, METH_O, ""},
    {"note_rows", py_note_rows, METH_O, ""},
    {"stop", py_stop, METH_O, ""},
    {"on_demand", py_on_demand, METH_O, ""},
    {"cleared", py_cleared, METH_NOARGS, ""},
    {"forget", py_forget, METH_NOARGS, ""},
    {"scope", py_scope, METH_O, ""},
    {"know_module", py_know_module, METH_VARARGS, ""},
    {"enter_module", (PyCFunction)(void (*)(void))py_enter_module, METH_FASTCALL, ""},
    {"leave_module", py_leave_module, METH_O, ""},
    {"follow", py_follow, METH_O, ""},
    {"enter", py_enter, METH_VARARGS, ""},
    {"leave", py_leave, METH_O, ""},
    {"where", py_where, METH_O, ""},
    {"opened", py_opened, METH_NOARGS, ""},
    {"rows", py_rows, METH_NOARGS, ""},
    {nullptr, nullptr, 0, nullptr},
};
PyModuleDef module = {PyModuleDef_HEAD_INIT, "_observer", "Marks ops from C++.", -1, methods,
                      nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit__observer(void) { return PyModule_Create(&module); }
