// The command as a person meets it: what it answers, with which exit status, and its JSON.
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cstdio>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

#include "runtime/cuda/driver.hpp"
#include "tileway/program.hpp"

namespace tileway {
namespace {

struct Answer {
  int status;
  std::string text;  // stdout and stderr
};

Answer command(const std::string& arguments) {
  FILE* pipe = popen((std::string(TILEWAY_COMMAND) + " " + arguments + " 2>&1").c_str(), "r");
  Answer answer{-1, {}};
  std::array<char, 4096> block{};
  while (const std::size_t got = fread(block.data(), 1, block.size(), pipe)) answer.text.append(block.data(), got);
  answer.status = WEXITSTATUS(pclose(pipe));
  return answer;
}

// Of this process alone: tests run side by side.
std::string temporary(const std::string& name) {
  return ::testing::TempDir() + "tileway-" + std::to_string(getpid()) + "-" + name;
}

nlohmann::json read_json(const std::string& path) { return nlohmann::json::parse(std::ifstream(path)); }

void expect(const Answer& answer, int status, const std::string& part) {
  EXPECT_EQ(answer.status, status) << answer.text;
  EXPECT_NE(answer.text.find(part), std::string::npos) << answer.text;
}

TEST(Command, ProcessesBenchPrintsUnfusedAndOverlappedTimeAndErrorAndWritesThemAsJson) {
  const std::string path = temporary("bench.json");
  const Answer answer =
      command("bench gemm_all_reduce --ranks 3 --size 65x129x127 --repeat 3 --executor host --json " + path);
  expect(answer, 0, "overlapped");
  const nlohmann::json report = read_json(path);
  EXPECT_FALSE(report.at("version").get<std::string>().empty());
  EXPECT_GT(report.at("machine").at("link_gb_s").get<double>(), 0);
  const nlohmann::json& result = report.at("results").at(0);
  EXPECT_EQ(result.at("op"), "gemm_all_reduce");
  EXPECT_EQ(result.at("size"), (std::vector<int>{65, 129, 127}));
  EXPECT_EQ(result.at("ranks"), 3);
  EXPECT_EQ(result.at("executor"), "host");
  EXPECT_GT(result.at("bound_us").get<double>(), 0);
  std::vector<std::string> names;
  for (const nlohmann::json& row : result.at("rows")) {
    names.push_back(row.at("name"));
    EXPECT_LE(row.at("p10_us").get<double>(), row.at("median_us").get<double>());
    EXPECT_LE(row.at("median_us").get<double>(), row.at("p90_us").get<double>());
    EXPECT_LT(row.at("max_error").get<double>(), 1e-3);
    EXPECT_TRUE(row.at("exact").get<bool>());
  }
  EXPECT_EQ(names, (std::vector<std::string>{"compute", "unfused", "overlapped"}));
  // Two of three partials of each tile go to whoever adds them up, and two copies of the sum come back.
  EXPECT_EQ(result.at("rows").at(1).at("bytes_sent").at("copy"), 4 * 65 * 129 * 4);
}

TEST(Command, ProcessesRunComparesWithTheInterpreter) {
  expect(command("run all_gather_gemm --ranks 3 --size 33x17x29 --dtype bf16 --schedule all --repeat 2"), 0, "right");
  expect(command("run all_to_all_v --ranks 3 --size 9x5"), 0, "right");
}

TEST(Command, ProcessesAProgramFileRuns) {
  const std::string path = temporary("program.json");
  expect(command("explain gemm_reduce_scatter --ranks 2 --size 8x8x8 --json " + path), 0,
         "program gemm_reduce_scatter over 2 ranks");
  expect(command("run " + path), 0, "right");
  expect(command("run " + path + " --ranks 3"), 2, "the program is for another number of ranks; expected 2, got 3");
  expect(command("run " + path + " --size 4x4x4"), 2, "a program file has its own size");
}

TEST(Command, ExplainShowsProgramPlanAndTimelineAndWritesThePlan) {
  const std::string path = temporary("plan.json");
  const Answer answer = command(
      "explain gemm_all_reduce --ranks 8 --size 4096x8192x4096 --dtype bf16 --topology ranks=8,lanes=132,copy=2 "
      "--plan " +
      path);
  expect(answer, 0, "%2 = matmul(%0, %1) : bf16[4096, 8192] Partial(sum)");
  expect(answer, 0, "lanes=132");
  expect(answer, 0, "predicted:");
  EXPECT_EQ(read_json(path).at("tileway_plan"), 1);
  expect(command("explain gemm_all_reduce --ranks 2 --size 8x8x8 --full"), 0, "wait   signal");
  expect(command("explain gemm_all_reduce --ranks 2 --size 64x64x128 --dtype bf16"), 0,
         "sm_90a by wgmma, operands loaded by TMA");
  expect(command("explain gemm_all_reduce --ranks 2 --size 64x64x67 --dtype bf16"), 0,
         "sm_90a by mma.sync: a box or its rows do not begin at multiples of 16 bytes");
}

TEST(Command, ProcessesTf32IsAPrecisionOfTheProductsOfF32) {
  const std::string shape = "gemm_all_reduce --ranks 2 --size 33x17x29 --dtype tf32 ";
  expect(command("explain " + shape + "--full"), 0, "%2 = matmul(%0, %1, tf32) : f32[33, 17] Partial(sum)");
  expect(command("explain " + shape + "--full"), 0, "matmul tf32\n");
  expect(command("run " + shape + "--schedule all"), 0, "right");
  const std::string path = temporary("tf32.json");
  expect(command("bench " + shape + "--repeat 3 --executor host --json " + path), 0, "33x17x29 tf32 on 2 ranks");
  const nlohmann::json result = read_json(path).at("results").at(0);
  EXPECT_EQ(result.at("dtype"), "tf32");
  const nlohmann::json& row = result.at("rows").at(1);
  EXPECT_TRUE(row.at("exact").get<bool>());
  EXPECT_GT(row.at("max_error").get<double>(), 1e-4);  // 10 bits: f32 would be at 1e-6
  expect(command("run all_to_all_v --dtype tf32"), 2, "all_to_all_v: it has no product of f32 matrices");
  const std::string program = temporary("program.json");
  expect(command("explain " + shape + "--json " + program), 0, "proven:");
  expect(command("explain " + program), 0, "matmul(%0, %1, tf32)");
  expect(command("run " + program + " --dtype tf32"), 2, "a program file has its own dtypes; got tf32");
}

TEST(Command, ProcessesE4m3IsProductsOfFp8WithScalesInBf16) {
  const std::string shape = "gemm_all_reduce --ranks 2 --size 33x17x29 --dtype e4m3 ";
  expect(command("explain " + shape), 0, "%4 = scaled_matmul(%0, %1, %2, %3, bf16) : bf16[33, 17] Partial(sum)");
  expect(command("run " + shape + "--schedule all"), 0, "right");
  const std::string path = temporary("e4m3.json");
  expect(command("bench " + shape + "--repeat 3 --executor host --json " + path), 0, "33x17x29 e4m3 on 2 ranks");
  EXPECT_TRUE(read_json(path).at("results").at(0).at("rows").at(1).at("exact").get<bool>());
  expect(command("run all_reduce_rms_norm --dtype e4m3"), 2, "e4m3 is not computed with");
  expect(command("compile " + shape + "--arch sm_80,sm_90a"), 1,
         "for sm_80: [tileway] kernels for sm_80: fp8 products");
  expect(command("compile " + shape + "--arch sm_90a"), 0, "products by mma.sync: a box or its rows");
}

TEST(Command, VerifyProvesAPlanOrSaysHowItGoesWrong) {
  const std::string path = temporary("proof.json");
  expect(command("verify gemm_all_reduce --ranks 3 --schedule all --json " + path), 0, "overlapped: proven");
  EXPECT_TRUE(read_json(path).at(1).at("proven").get<bool>());
  // A plan file with a wait taken out.
  const std::string plan = temporary("plan.json");
  expect(command("explain gemm_all_reduce --ranks 2 --size 64x64x64 --plan " + plan), 0, "proven:");
  expect(command("verify " + plan), 0, "proven");
  nlohmann::json broken = read_json(plan);
  for (auto& task : broken.at("tasks")) {
    if (task.at("reads").size() > 1 && !task.at("waits").empty()) {
      task.at("waits") = nlohmann::json::array();
      break;
    }
  }
  std::ofstream(plan) << broken.dump();
  expect(command("verify " + plan + " --json " + path), 1, "nothing orders them");
  EXPECT_EQ(read_json(path).at(0).at("refusal").at("fault"), "race");
  const std::string least = temporary("least.json");
  expect(command("explore " + plan + " --seeds 100 --shrink " + least), 1, "of its");
  EXPECT_LE(read_json(least).at("tasks").size(), 3U);
  expect(command("verify " + least), 1, "refused");
  expect(command("verify " + plan + " --ranks 3"), 2, "a plan file has its own ranks");
  expect(command("verify /nonexistent.json"), 2, "cannot be read");
}

TEST(Command, ExploreFindsNothingInAGoodPlan) {
  expect(command("explore gemm_all_reduce --ranks 3 --seeds 20"), 0, "20 seeds");
  expect(command("explore all_to_all_v --ranks 2 --seeds 5 --values"), 0, "the interpreter's values every time");
}

TEST(Command, DoctorSaysWhatIsUsedAndWhatIsMissing) {
  const std::string path = temporary("doctor.json");
  expect(command("doctor --json " + path), 0, "executor     host");
  EXPECT_GT(read_json(path).at("machine").at("cores").get<int>(), 0);
}

TEST(Command, BadInputIsStatusTwoWithTheReason) {
  expect(command(""), 2, "subcommand is required");
  expect(command("bench"), 2, "OP is required");
  expect(command("run gemm_all_reduce --rank 2"), 2, "--rank");
  expect(command("run gemm_all_reduce --ranks 0"), 2, "--ranks");
  expect(command("run nothing"), 2, "operator 'nothing': there is none of this name; expected all_gather_gemm");
  expect(command("run gemm_all_reduce --size 3x4"), 2, "expected MxNxK, got 3x4");
  expect(command("run gemm_all_reduce --size 3xax4"), 2, "not a size");
  expect(command("run gemm_all_reduce --dtype f64"), 2, "f64 is not a type of programs");
  expect(command("run gemm_all_reduce --dtype int"), 2, "unknown name");
  if (cuda::fleet().gpus == 0) expect(command("run gemm_all_reduce --executor cuda"), 2, "there is no GPU here");
  expect(command("run gemm_all_reduce --schedule fast"), 2,
         "expected unfused, overlapped, fused, collective or library, got fast");
  expect(command("run gemm_all_reduce --executor tpu"), 2, "expected auto, host or cuda, got tpu");
  expect(command("run gemm_all_reduce --topology ranks=4"), 2, "it has another number of ranks; expected 2, got 4");
  expect(command("run missing.json"), 2, "missing.json: cannot be read");
  expect(command("explain gemm_all_reduce --plan /nonexistent/plan.json"), 2,
         "/nonexistent/plan.json: cannot be written");
}

TEST(Command, HelpIsStatusZero) { expect(command("--help"), 0, "explain"); }

}  // namespace
}  // namespace tileway
