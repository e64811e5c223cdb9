// Tests of where credentials and settings of S3 come from.
#include "pipeline/remote/credentials.h"

#include <gtest/gtest.h>

#include "millrace/error.h"
#include "tests/remote/aws_home.h"
#include "tests/remote/fault_server.h"

namespace millrace::pipeline {
namespace {

using test::FaultServer;
using test::Home;
using test::Variable;

TEST(S3Profiles, AreParsed) {
  const Profiles all = parse_profiles(
      "lost = 1\n[default]\naws_access_key_id=A # mine\r\n# no = comment\ns3 =\n  signature = 4\n"
      "[ profile x ]\nregion = eu-west-1\nnonsense\n[broken\nregion = lost\n");
  EXPECT_EQ(all.at("default").at("aws_access_key_id"), "A");
  EXPECT_EQ(all.at("default").count("signature"), 0u);
  EXPECT_EQ(all.at("default").count("no"), 0u);
  EXPECT_EQ(all.at("profile x").at("region"), "eu-west-1");
  EXPECT_EQ(all.size(), 2u);
}

TEST(S3Profiles, SecondTheEnvironment) {
  Home home;
  home.write("credentials",
             "[default]\naws_access_key_id=d\naws_secret_access_key=ds\n"
             "[x]\naws_access_key_id=x\naws_secret_access_key=xs\n"
             "aws_session_token=xt\n[half]\naws_access_key_id=h\n");
  home.write("config",
             "[profile x]\nregion=eu-north-1\nendpoint_url=http://127.0.0.1:1\n"
             "[profile sso]\nsso_session=corporate\n");
  EXPECT_EQ(home.find().id, "d");
  EXPECT_EQ(s3_settings().region, "us-east-1");
  {
    const Variable profile("AWS_PROFILE", "x");
    EXPECT_EQ(home.find().token, "xt");
    EXPECT_EQ(s3_settings().region, "eu-north-1");
    EXPECT_EQ(s3_settings().endpoint, "http://127.0.0.1:1");
    const Variable region("AWS_REGION", "us-west-2");
    EXPECT_EQ(s3_settings().region, "us-west-2");
    const Variable id("AWS_ACCESS_KEY_ID", "e"), secret("AWS_SECRET_ACCESS_KEY", "es");
    EXPECT_EQ(home.find().id, "e");
  }
  for (const char* name : {"missing", "half", "sso"}) {
    const Variable profile("AWS_PROFILE", name);
    EXPECT_THROW(home.find(), UsageError) << name;
  }
  const Variable id("AWS_ACCESS_KEY_ID", "e");
  EXPECT_THROW(home.find(), UsageError) << "without a secret";
  const Variable secret("AWS_SECRET_ACCESS_KEY", "two\nlines");
  EXPECT_THROW(home.find(), UsageError);
}

TEST(S3Metadata, IsAskedWithATokenAndOnlyWhenItIsWanted) {
  Home home;
  FaultServer service;
  const Variable endpoint("AWS_EC2_METADATA_SERVICE_ENDPOINT", service.url());
  const std::string roles = "/latest/meta-data/iam/security-credentials/";
  service.put("/latest/api/token", "session");
  service.put(roles, "worker\n");
  service.put(roles + "worker",
              R"({"Code":"Success","AccessKeyId":"i","SecretAccessKey":"s","Token":"t",)"
              R"("Expiration":"2026-11-23T09:00:00Z"})");
  EXPECT_EQ(home.find(true).id, "");
  EXPECT_EQ(home.find(false).id, "");
  EXPECT_TRUE(service.requests().empty());
  const Variable enabled("AWS_EC2_METADATA_DISABLED", "false");
  const Credentials found = home.find(true);
  EXPECT_EQ(found.token, "t");
  EXPECT_EQ(found.expires, 1795424400);
  const auto requests = service.requests();
  ASSERT_EQ(requests.size(), 3u);
  EXPECT_TRUE(requests[0].starts_with("PUT "));
  EXPECT_NE(requests[0].find("X-aws-ec2-metadata-token-ttl-seconds: 21600"), std::string::npos);
  EXPECT_NE(requests[2].find("X-aws-ec2-metadata-token: session"), std::string::npos);
  service.remove(roles + "worker");
  EXPECT_EQ(home.find(true).id, "");
}

}  // namespace
}  // namespace millrace::pipeline
